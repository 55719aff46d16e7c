"""CIFAR-10-C, made anew by its published recipe, and public networks to put to it."""
