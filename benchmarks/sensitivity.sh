#!/usr/bin/env bash
# ResNet-50, four pairs of OfficeHome: sensitivity to lambda and beta
set -e
tllib-ancon benchmark sensitivity data/office-home --out logs/sensitivity
tllib-ancon report logs/sensitivity --out logs/sensitivity/report
