#!/usr/bin/env bash
# ResNet-50, four pairs of OfficeHome: weighting and prediction schemes
set -e
tllib-ancon benchmark ablation data/office-home --out logs/ablation
tllib-ancon report logs/ablation --out logs/ablation/report
