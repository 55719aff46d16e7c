#!/usr/bin/env bash
# The demo's nine adaptations, two that a large learning rate ruins, and one on the source's own images; then the table of
# what the certificate says of each. No data are needed.
#
#   benchmarks/certificate/runs.sh OUT
#
# The same command continues what was interrupted.
set -e
OUT=$1
tllib-ancon demo --out "$OUT/demo" --seeds 0 1 2
adapt() {  # NAME SEED TARGET [flags]
  tllib-ancon adapt "$OUT/demo/data" -d ImageList -s rendered -t "$3" --checkpoint "$OUT/demo/source/erm-rendered-seed$2" \
    --method self-training --epochs 2 --quiet --log "$OUT/more/$1" "${@:4}"
}
adapt lr-1 2 handwritten --lr 1
adapt lr-0.1 1 handwritten --lr 0.1
adapt no-shift 0 rendered
python -m benchmarks.certificate --runs "$OUT/demo" "$OUT/more"
