"""Corruptions of torchvision over any folder of images, where ImageNet-C is absent."""
