#!/usr/bin/env bash
# ResNet-50, Office-31, source-free: Tables 1 and 3
set -e
tllib-ancon benchmark office31 data/office31 --out logs/office31
tllib-ancon report logs/office31 --out logs/office31/report
