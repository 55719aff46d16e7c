#!/usr/bin/env bash
# TLLib's own erm.py, cdan.py and mdd.py, unmodified, and four methods after each of them: README.md of this folder.
#
#   TLLIB_REPO=Transfer-Learning-Library benchmarks/toolkit/run.sh OFFICE31 WEIGHTS OUT
#
# OFFICE31 holds TLLib's layout. WEIGHTS is a .safetensors file of ImageNet for timm's mobilenetv2_100, which TLLib's
# scripts would download. The same command continues what was interrupted.
#
# From the environment: TLLIB_REPO (a checkout of TLLib, commit c4aa59e), SCRIPTS, PAIRS, METHODS, SEEDS, STEPS (of
# a script) and EPOCHS (of an adaptation).
set -euo pipefail
OFFICE31=$1 WEIGHTS=$2 OUT=$3
EXAMPLES=${TLLIB_REPO:-Transfer-Learning-Library}/examples/domain_adaptation/image_classification
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} HF_HUB_OFFLINE=1 HF_HOME=$OUT/hub

# timm looks for its weights in this cache
CACHE=$HF_HOME/hub/models--timm--mobilenetv2_100.ra_in1k
mkdir -p "$CACHE/refs" "$CACHE/snapshots/file"
printf file > "$CACHE/refs/main"
cp "$WEIGHTS" "$CACHE/snapshots/file/model.safetensors"

IMAGES="--train-resizing res. --val-resizing res. --resize-size 96 --norm-mean .5 .5 .5 --norm-std .5 .5 .5"
ADAPT="--epochs ${EPOCHS:-2} --batch-size 32 --threads 1"
adapt() { # PAIR SCRIPT SEED METHOD: the script runs once for its log, methods after the first start from its checkpoint
  local BATCH=16 LOG=$OUT/runs/$2-$1-seed$3 # BATCH images of the source and as many of the target
  if [ "$2" = erm ]; then BATCH=32; fi
  if [ -e "$LOG/$4" ]; then return; fi
  tllib-ancon script "$EXAMPLES/$2.py" "$OFFICE31" -d Office31 -s "${1%-*}" -t "${1#*-}" \
    -a mobilenetv2_100 $IMAGES -b $BATCH -j 0 --epochs 1 -i "${STEPS:-60}" --seed "$3" --log "$LOG" \
    --method "$4" $ADAPT
  mv "$LOG/adapt" "$LOG/$4"
}

for SEED in ${SEEDS:-0 1 2}; do
  for PAIR in ${PAIRS:-W-D D-W A-W}; do
    for SCRIPT in ${SCRIPTS:-erm cdan mdd}; do
      for METHOD in ${METHODS:-adabn self-training ancon ancon-auto}; do
        adapt "$PAIR" "$SCRIPT" "$SEED" "$METHOD"
      done
    done
  done
done
python -m benchmarks.toolkit.table "$OUT"
