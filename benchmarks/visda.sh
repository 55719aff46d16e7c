#!/usr/bin/env bash
# ResNet-101, VisDA-2017, source-free: Tables 1 and 6
set -e
tllib-ancon benchmark visda data/visda-2017 --out logs/visda
tllib-ancon report logs/visda --out logs/visda/report
