#!/usr/bin/env bash
# ResNet-50, not ImageNet-C: corruptions of torchvision over Office-31's Amazon pictures
set -e
python -m benchmarks.imagenet_c_stand_in data/office31/amazon/images logs/imagenet-c-stand-in/images
tllib-ancon benchmark benchmarks/imagenet_c_stand_in/plan.toml logs/imagenet-c-stand-in/images --out logs/imagenet-c-stand-in
tllib-ancon report logs/imagenet-c-stand-in --out logs/imagenet-c-stand-in/report
