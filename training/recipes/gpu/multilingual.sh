#!/usr/bin/env bash
# Trains one small model of four directions, English with German and French, from the teacher's translations, and exports it.
#
#   DATA=/path/to/parallel training/recipes/gpu/multilingual.sh WORK REPOSITORY
#
# Run it after teacher.sh, with the same WORK; translations that pair.sh has made there are used again. MINUTES is the training time
# (20). Without REPOSITORY nothing is exported.
source "$(dirname "$0")/common.sh"
work=$1 repository=${2:-}
source "$recipes/data.sh"

files=()
for direction in en-de de-en en-fr fr-en; do
  pairs=()
  for set in "${sets[@]}"; do
    pairs+=(--pairs "$data/$set.$direction.tsv.gz")
  done
  out=$work/distilled.$direction.tsv.gz
  distill "$work/teacher/model" "$out" "${pairs[@]}" --target-language "${direction#*-}" --beam-size 5 --batch-tokens 64000
  files+=(--train "${direction/-/:}=$out" --valid "${direction/-/:}=$data/valid.$direction.tsv.gz")
done

train translation "$work/multilingual" "${files[@]}" \
  --vocabulary-size 8000 --max-length 128 --max-positions 256 \
  --model-dim 256 --heads 4 --feedforward-dim 1024 --encoder-layers 6 --decoder-layers 1 --norm pre --dropout 0 --label-smoothing 0.1 \
  --optimizer muon --learning-rate 4e-3 --schedule linear --warmup-steps 300 --batch-tokens 32000 \
  --epochs 1000 --max-minutes "${MINUTES:-20}" --validate-every 5 --average 1 --keep 2 --save-steps 1000 --compile --seed 1

for direction in en-de de-en en-fr fr-en; do
  echo "$direction"
  score "$work/multilingual/model" "$data/valid.$direction.tsv.gz" --target-language "${direction#*-}"
done
keep "$work/multilingual" "$work/multilingual/model"

if [[ -n $repository ]]; then
  triptych export "$work/multilingual/model" --out "$repository" --name en-de-fr --precision int8 --notes "$recipes/notes/multilingual.md"
  for direction in en-de de-en en-fr fr-en; do
    echo "$direction"
    triptych evaluate translation "$data/valid.$direction.tsv.gz" --models "$repository" --model en-de-fr \
      --source-language "${direction%-*}" --target-language "${direction#*-}"
  done
fi
