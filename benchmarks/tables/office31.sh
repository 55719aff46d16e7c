#!/usr/bin/env bash
# Office-31 with a MobileNetV2 at 128 pixels: the tables of benchmarks/tables/README.md. No GPU is needed.
#
#   benchmarks/tables/office31.sh OFFICE31 WEIGHTS OUT [flags of "tllib-ancon benchmark", as --seeds 0 or --methods ancon]
#
# AaD has a plan of its own, benchmarks/tables/aad.toml, which the function "made" runs in the same way.
#
# WEIGHTS: of ImageNet for mobilenetv2_100, .safetensors. The same command continues what was interrupted. A run has one
# thread; "--jobs 2" makes two runs at a time.
set -e
OFFICE31=$1 WEIGHTS=$2 OUT=$3
shift 3
made() {
  local plan=$1 folder=$2
  shift 2
  mkdir -p "$OUT"
  printf 'extends = "%s"\n[common]\ncache = "%s"\nworkers = 0\n[source.erm]\npretrained-weights = "%s"\n' \
    "benchmarks/tables/$plan.toml" "$OUT/cache" "$WEIGHTS" > "$OUT/$plan.toml"
  tllib-ancon benchmark "$OUT/$plan.toml" "$OFFICE31" --out "$OUT/$folder" "$@"
}
made office31 runs "$@"
made office31_to_amazon runs "$@"
tllib-ancon report "$OUT"/runs/erm/*-[DW] --out "$OUT/report"
tllib-ancon report "$OUT"/runs/erm/*-A --out "$OUT/report-to-amazon"
