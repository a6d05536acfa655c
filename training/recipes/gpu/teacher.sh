#!/usr/bin/env bash
# Trains the teacher of all small translation models: English, German and French, four directions in one model.
#
#   DATA=/path/to/parallel training/recipes/gpu/teacher.sh WORK
#
# DATA contains the compressed sentence pairs that data.sh names. WORK/teacher is the run folder, WORK/teacher.json and its pieces are
# the packed checkpoint. MINUTES is the training time (25).
source "$(dirname "$0")/common.sh"
work=$1
source "$recipes/data.sh"

files=()
for direction in en-de de-en en-fr fr-en; do
  for set in "${sets[@]}"; do
    files+=(--train "${direction/-/:}=$data/$set.$direction.tsv.gz")
  done
  files+=(--valid "${direction/-/:}=$data/valid.$direction.tsv.gz")
done

train translation "$work/teacher" "${files[@]}" \
  --vocabulary-size 16000 --max-length 128 --max-positions 256 \
  --model-dim 512 --heads 8 --feedforward-dim 2048 --encoder-layers 6 --decoder-layers 6 --norm pre --dropout 0.2 --label-smoothing 0.1 \
  --optimizer muon --learning-rate 2e-3 --schedule linear --warmup-steps 500 --weight-decay 0.01 --batch-tokens 32000 \
  --epochs 1000 --max-minutes "${MINUTES:-25}" --validate-every 10 --average 1 --keep 2 --save-steps 1000 --compile --seed 1

for direction in en-de de-en en-fr fr-en; do
  echo "$direction"
  score "$work/teacher/model" "$data/valid.$direction.tsv.gz" --target-language "${direction#*-}"
done
keep "$work/teacher" "$work/teacher/model"
