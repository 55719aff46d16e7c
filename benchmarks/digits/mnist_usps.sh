#!/usr/bin/env bash
# MNIST -> USPS and USPS -> MNIST with SHOT's protocol, to compare with SHOT's published digits.
#
#   python -m benchmarks.digits.to_tllib DIGITS --mnist mnist.npz --usps usps.npz --resplit-usps 1860
#   benchmarks/digits/mnist_usps.sh DIGITS OUT
#   python -m benchmarks.digits.table OUT
#
# Settings, from the environment: ARCH (lenet needs tllib; small_cnn needs nothing), SEEDS, METHODS, PAIRS, WORKERS,
# CACHE (a folder), HOLD_OUT, SEARCH (NRC's neighbours: exact or cached), and for a shorter run SOURCE_EPOCHS and EPOCHS (SHOT's: 30 and 30).
# SHOT's protocol: label smoothing 0.1 at the source, its USPS shifted by up to 4 pixels and turned by up to 10 degrees,
# batches of 64, lr 0.01 for every layer, the head frozen, dropout on, no augmentation at the target, all of its training
# split adapted on, the last model, its accuracy on the test split.
set -euo pipefail
DIGITS=$1 OUT=$2
ARCH=${ARCH:-lenet}

NET="-d ImageList --num-classes 10 -a $ARCH --scratch --train-resizing res. --val-resizing res. --resize-size 28 --no-hflip"
SGD="-b 64 --lr 0.01 --momentum 0.9 --wd 1e-3 --lr-gamma 10 --lr-decay 0.75 -j ${WORKERS:-2} --quiet"
SGD="$SGD ${CACHE:+--cache $CACHE}"

for SEED in ${SEEDS:-0 1 2}; do
  for PAIR in ${PAIRS:-MNIST-USPS USPS-MNIST}; do
    SOURCE=${PAIR%-*} TARGET=${PAIR#*-} RUN=$OUT/$PAIR-seed$SEED
    TRAIN="-t ${TARGET,,}_train" TEST="-t ${TARGET,,}_test"
    AUGMENTATION=
    if [ "$SOURCE" = USPS ]; then AUGMENTATION="--padding 4 --rotation 10"; fi
    tllib-ancon pretrain "$DIGITS/$SOURCE" $NET $SGD $AUGMENTATION -s "${SOURCE,,}_train" --seed "$SEED" \
      --epochs "${SOURCE_EPOCHS:-30}" --label-smoothing 0.1 --log "$RUN/source"
    START=$RUN/source/checkpoints/best.pth
    tllib-ancon evaluate "$DIGITS/$TARGET" $NET $TEST --checkpoint "$START" --json "$RUN/source-only.json"
    for METHOD in ${METHODS:-shot self-training elr ancon nrc+ancon}; do
      case $METHOD in
        shot*) OWN="--shot-coefficient 0.1" ;;
        nrc*) OWN="--search ${SEARCH:-exact}" ;;
        *) OWN= ;;
      esac
      tllib-ancon adapt "$DIGITS/$TARGET" $NET $SGD $TRAIN --checkpoint "$START" --seed "$SEED" --method "$METHOD" $OWN \
        --dropout --hold-out "${HOLD_OUT:-0}" --epochs "${EPOCHS:-30}" --log "$RUN/$METHOD"
      tllib-ancon evaluate "$DIGITS/$TARGET" $NET $TEST --checkpoint "$RUN/$METHOD/checkpoints/latest.pth" \
        --json "$RUN/$METHOD.json"
    done
  done
done
