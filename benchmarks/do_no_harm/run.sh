#!/usr/bin/env bash
# Does adaptation end below its start? Office-31 with a MobileNetV2 at 96 pixels and MNIST <-> USPS, no GPU needed.
#
#   python -m benchmarks.digits.to_tllib DIGITS --mnist mnist.npz --usps usps.npz
#   benchmarks/do_no_harm/run.sh OFFICE31 DIGITS WEIGHTS OUT [flags of "tllib-ancon benchmark", as --seeds 0]
#
# WEIGHTS: of ImageNet for mobilenetv2_100, .safetensors. The same command continues what was interrupted.
set -e
OFFICE31=$1 DIGITS=$2 WEIGHTS=$3 OUT=$4
shift 4
mkdir -p "$OUT"
FOLDER=benchmarks/do_no_harm
python -m benchmarks.do_no_harm.lists "$OUT/lists" --office31 "$OFFICE31" --digits "$DIGITS"
tllib-ancon benchmark $FOLDER/office31.toml "$OUT/lists/office31" --out "$OUT/office31" --pretrained-weights "$WEIGHTS" "$@"
tllib-ancon benchmark $FOLDER/amazon.toml "$OUT/lists/office31" --out "$OUT/office31" --pretrained-weights "$WEIGHTS" "$@"
tllib-ancon benchmark $FOLDER/digits.toml "$OUT/lists/digits" --out "$OUT/digits" "$@"
python -m benchmarks.do_no_harm.table "$OUT/office31" "$OUT/digits" --csv "$OUT/do_no_harm.csv" | tee "$OUT/do_no_harm.md"
