#!/usr/bin/env bash
# ResNet-50, not ImageNet-C: corruptions of torchvision over Office-31's Amazon pictures
set -e
tllib-ancon benchmark imagenet-c data/office31/amazon/images --stand-in --out logs/imagenet-c-stand-in
tllib-ancon report logs/imagenet-c-stand-in --out logs/imagenet-c-stand-in/report
