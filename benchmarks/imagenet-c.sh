#!/usr/bin/env bash
# ResNet-50, ImageNet-C, five severities: Tables 7 to 11, Figure 1, and the choice of the epoch by several criteria
set -e
tllib-ancon benchmark imagenet-c data/imagenet-c --out logs/imagenet-c
tllib-ancon report logs/imagenet-c --out logs/imagenet-c/report
tllib-ancon report logs/imagenet-c --paper selection --out logs/imagenet-c/selection
