#!/usr/bin/env bash
# ResNet-50, OfficeHome, source-free: Tables 1, 4 and 5
set -e
tllib-ancon benchmark officehome data/office-home --out logs/officehome
tllib-ancon report logs/officehome --out logs/officehome/report
