#!/usr/bin/env bash
# Office-31 with a MobileNetV2 at 128 pixels: all tables of benchmarks/results/office31_128.md. No GPU is needed.
#
#   benchmarks/evidence/run.sh OFFICE31 WEIGHTS OUT [flags of "tllib-ancon benchmark", as --seeds 0 or --methods ancon]
#
# AaD with its classifier frozen and trained is a plan of its own, with tables of its own:
#   tllib-ancon benchmark benchmarks/evidence/aad.toml OFFICE31 --out OUT/aad --pretrained-weights WEIGHTS --cache OUT/cache -j 0
#   tllib-ancon report OUT/aad --out OUT/report-aad
#
# WEIGHTS: of ImageNet for mobilenetv2_100, .safetensors. The same command continues what was interrupted. A run has one
# thread; "--jobs 2" makes two runs at a time.
set -e
OFFICE31=$1 WEIGHTS=$2 OUT=$3
shift 3
made() {
  local plan=$1 folder=$2
  shift 2
  tllib-ancon benchmark "benchmarks/evidence/$plan.toml" "$OFFICE31" --out "$OUT/$folder" \
    --pretrained-weights "$WEIGHTS" --cache "$OUT/cache" -j 0 "$@"
}
made office31 runs "$@"
made office31_to_amazon runs "$@"
tllib-ancon report "$OUT"/runs/erm/*-[DW] --out "$OUT/report"
tllib-ancon report "$OUT"/runs/erm/*-A --out "$OUT/report-to-amazon"
python -m benchmarks.evidence.beside "$OUT"/{report,report-to-amazon}/runs.csv > "$OUT/six_pairs.md"
