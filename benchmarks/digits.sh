#!/usr/bin/env bash
# LeNet, MNIST and USPS, beside SHOT's numbers; needs tllib
set -e
tllib-ancon benchmark digits data/digits --out logs/digits
tllib-ancon report logs/digits --out logs/digits/report
