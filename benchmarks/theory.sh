#!/usr/bin/env bash
# ResNet-50, ImageNet-C: accuracy of the temporal ensemble by number of votes
set -e
tllib-ancon benchmark theory data/imagenet-c --out logs/theory
tllib-ancon report logs/theory --out logs/theory/report
