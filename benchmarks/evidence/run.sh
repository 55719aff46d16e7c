#!/usr/bin/env bash
# Office-31 with a MobileNetV2 at 128 pixels: all tables of benchmarks/results/office31_128.md. No GPU is needed.
#
#   benchmarks/evidence/run.sh OFFICE31 WEIGHTS OUT [flags of "tllib-ancon benchmark", as --seeds 0 or --methods ancon]
#
# WEIGHTS: of ImageNet for mobilenetv2_100, .safetensors. The same command continues what was interrupted; run after run
# is made, one thread each, so that two of these commands with other seeds fill two cores.
set -e
OFFICE31=$1 WEIGHTS=$2 OUT=$3
shift 3
for PLAN in aad office31 office31_to_amazon; do
  tllib-ancon benchmark benchmarks/evidence/$PLAN.toml "$OFFICE31" --out "$OUT/runs" --pretrained-weights "$WEIGHTS" \
    --cache "$OUT/cache" -j 0 "$@"
done
tllib-ancon report "$OUT/runs" --out "$OUT/report"
