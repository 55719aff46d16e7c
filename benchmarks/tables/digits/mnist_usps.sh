#!/usr/bin/env bash
# MNIST -> USPS and USPS -> MNIST with SHOT's protocol, to compare with SHOT's published digits.
#
#   python -m benchmarks.tables.digits.to_tllib DIGITS --mnist mnist.npz --usps usps.npz --resplit-usps 1860
#   benchmarks/tables/digits/mnist_usps.sh DIGITS OUT
#
# OUT/PAIR-seedN/METHOD.json has accuracy and ECE of each run.
# Settings, from the environment: ARCH (shot_lenet; TLLib's lenet needs tllib), BOTTLENECK_DROPOUT, SEEDS, METHODS, PAIRS,
# WORKERS, CACHE (a folder), and for a shorter run HOLD_OUT (SHOT's: 0, of source and target), SOURCE_EPOCHS (SHOT's: 30)
# and EPOCHS (SHOT's: 30). With the same OUT, a source model serves all runs.
# SHOT's protocol: its LeNet, a bottleneck of 256 with batch-norm and dropout of 0.5; label smoothing 0.1 at the source,
# its USPS shifted by up to 4 pixels and turned by up to 10 degrees, its last model; batches of 64, lr 0.01 for every
# layer, the head frozen, dropout on, no augmentation at the target, all of its training split adapted on, the last
# model, its accuracy on the test split.
set -euo pipefail
DIGITS=$1 OUT=$2
ARCH=${ARCH:-shot_lenet}

NET="-d ImageList -a $ARCH --scratch --val-resizing res. --resize-size 28 --no-hflip"
DROPOUT="--bottleneck-dropout ${BOTTLENECK_DROPOUT:-0.5}"
SGD="--train-resizing res. -b 64 --lr 0.01 --momentum 0.9 --wd 1e-3 --lr-gamma 10 --lr-decay 0.75 -j ${WORKERS:-2} --quiet"
SGD="$SGD ${CACHE:+--cache $CACHE}"

for SEED in ${SEEDS:-0 1 2}; do
  for PAIR in ${PAIRS:-MNIST-USPS USPS-MNIST}; do
    SOURCE=${PAIR%-*} TARGET=${PAIR#*-} RUN=$OUT/$PAIR-seed$SEED
    TRAIN="-t ${TARGET,,}_train" TEST="-t ${TARGET,,}_test"
    AUGMENTATION=
    if [ "$SOURCE" = USPS ]; then AUGMENTATION="--padding 4 --rotation 10"; fi
    tllib-ancon pretrain "$DIGITS/$SOURCE" $NET $SGD $DROPOUT $AUGMENTATION -s "${SOURCE,,}_train" --seed "$SEED" \
      --epochs "${SOURCE_EPOCHS:-30}" --hold-out "${HOLD_OUT:-0}" --label-smoothing 0.1 --log "$RUN/source"
    START=$RUN/source/checkpoints/latest.pth
    tllib-ancon evaluate "$DIGITS/$TARGET" $NET $TEST --checkpoint "$START" --json "$RUN/source-only.json"
    for METHOD in ${METHODS:-shot self-training elr ancon ancon-auto nrc+ancon}; do
      case $METHOD in
        shot*) OWN="--shot-coefficient 0.1" ;;
        *) OWN= ;;
      esac
      tllib-ancon adapt "$DIGITS/$TARGET" $NET $SGD $TRAIN --checkpoint "$START" --seed "$SEED" --method "$METHOD" $OWN \
        --dropout --hold-out "${HOLD_OUT:-0}" --epochs "${EPOCHS:-30}" --log "$RUN/$METHOD"
      tllib-ancon evaluate "$DIGITS/$TARGET" $NET $TEST --checkpoint "$RUN/$METHOD/checkpoints/latest.pth" \
        --json "$RUN/$METHOD.json"
    done
  done
done
