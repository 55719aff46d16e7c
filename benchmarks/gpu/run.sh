#!/usr/bin/env bash
# What only a GPU can show, in calls of under ten minutes: the same command again continues where the last one ended.
#
#   benchmarks/gpu/run.sh DATA OUT
#
# DATA holds office31/ in TLLib's layout and, to start from, weights.safetensors of the network (else its library's own).
# OUT receives every run and a log a step. A call ends with the status of each step. A step that ended is not made again, nor
# one that failed: remove
# OUT/ended/STEP to try it again. Status: 0 all is done, 1 all is done and a step failed, 75 call again.
#
# From the environment:
#   MINUTES  of a call (9)
#   NETWORK  flags of the model (-a resnet50)
#   SHORT    flags of the short runs, which show that each way of training works (--epochs 2)
#   PLAN     plan of "tllib-ancon benchmark" (a copy of office31, the paper's settings and three seeds, with WORKERS and
#            DATA's weights)
#   TABLE    its flags, such as --pairs
#   WORKERS  processes that load images (half the cores)
set -uo pipefail
DATA=$1 OUT=$2
NETWORK=${NETWORK:--a resnet50} SHORT=${SHORT:---epochs 2} PLAN=${PLAN:-$OUT/office31.toml} TABLE=${TABLE:-}
WORKERS=${WORKERS:-$(($(OMP_NUM_THREADS= nproc) / 2))}
WHOLE=$(awk "BEGIN {print int(60 * ${MINUTES:-9})}") GRACE=20 CALL_AGAIN=75
WEIGHTS=
if [ -e "$DATA/weights.safetensors" ]; then WEIGHTS="--pretrained-weights $DATA/weights.safetensors"; fi
mkdir -p "$OUT/ended" "$OUT/logs"
{
  printf 'extends = "office31"\n[common]\nworkers = %s\n' "$WORKERS"
  if [ -n "$WEIGHTS" ]; then printf '[source.erm]\npretrained-weights = "%s"\n' "$DATA/weights.safetensors"; fi
} > "$OUT/office31.toml"
trap 'tail -v -n 1 "$OUT"/ended/*' EXIT

# step NAME COMMAND...: make it in what is left of the time, unless it has ended
step() {
  local name=$1 left=$((WHOLE - SECONDS)) status
  shift
  if [ -e "$OUT/ended/$name" ]; then return; fi
  if [ "$left" -le 0 ]; then exit $CALL_AGAIN; fi
  echo "$name"
  timeout --kill-after=$GRACE "$left" "$@" >> "$OUT/logs/$name.txt" 2>&1
  status=$?
  if [ $SECONDS -ge $WHOLE ] && [ $status != 0 ]; then
    # a measurement starts from nothing each time, and one that had the whole call would never end
    if [[ $name != speed-* || $left -lt $((WHOLE - GRACE)) ]]; then exit $CALL_AGAIN; fi
    echo "it takes longer than a call" >> "$OUT/logs/$name.txt"
  fi
  echo $status > "$OUT/ended/$name"
}

# short NAME FLAGS...: an adaptation of two epochs, webcam -> dslr
short() {
  local name=$1
  shift
  step "$name" tllib-ancon adapt "$DATA/office31" -d Office31 -s W -t D $NETWORK --checkpoint "$OUT/short/start/checkpoints/latest.pth" \
    --log "$OUT/short/$name" -j "$WORKERS" --seed 0 $SHORT "$@"
}

step speed-step python -m benchmarks.speed --out "$OUT/speed.csv"
step start tllib-ancon pretrain "$DATA/office31" -d Office31 -s W $NETWORK $WEIGHTS --log "$OUT/short/start" -j "$WORKERS" --seed 0 $SHORT
short first
short again
step bit-for-bit cmp "$OUT/short/first/checkpoints/best.pth" "$OUT/short/again/checkpoints/best.pth"
short float32
short fp16 --mixed-precision fp16
short bf16 --mixed-precision bf16
short everything --cache "$OUT/cache" --mixed-precision bf16
step office31 tllib-ancon benchmark "$PLAN" "$DATA/office31" --out "$OUT/office31" $TABLE
step report tllib-ancon report "$OUT/office31" --out "$OUT/report"
if grep -qvx 0 "$OUT"/ended/*; then exit 1; fi
