#!/usr/bin/env bash
# ResNet-50, OfficeHome, from CDAN's and MDD's models: Table 2
set -e
tllib-ancon benchmark uda data/office-home --out logs/uda
tllib-ancon report logs/uda --out logs/uda/report
