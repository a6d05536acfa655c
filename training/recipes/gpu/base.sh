#!/usr/bin/env bash
# Trains and exports the English-German model of the base size (d 512, 6 + 6 layers, 16,000 pieces) that benchmarks use.
#
#   DATA=/path/to/parallel training/recipes/gpu/base.sh WORK REPOSITORY
#
# MINUTES is the training time (12). Without REPOSITORY nothing is exported.
source "$(dirname "$0")/common.sh"
work=$1 repository=${2:-}
source "$recipes/data.sh"

files=()
for set in "${sets[@]}"; do
  files+=(--train "$data/$set.en-de.tsv.gz")
done

train translation "$work/base" --source-language en --target-language de "${files[@]}" --valid "$data/valid.en-de.tsv.gz" \
  --vocabulary-size 16000 --max-length 200 --max-positions 512 \
  --model-dim 512 --heads 8 --feedforward-dim 2048 --encoder-layers 6 --decoder-layers 6 --norm pre --dropout 0.3 --label-smoothing 0.1 \
  --optimizer muon --learning-rate 2e-3 --schedule linear --warmup-steps 500 --weight-decay 0.01 --batch-tokens 32000 \
  --epochs 1000 --max-minutes "${MINUTES:-12}" --validate-every 5 --average 1 --keep 2 --save-steps 1000 --compile --seed 1

score "$work/base/model" "$data/valid.en-de.tsv.gz"
keep "$work/base" "$work/base/model"

if [[ -n $repository ]]; then
  triptych export "$work/base/model" --out "$repository" --name base-en-de --precision int8 --precision fp32 --precision fp16 \
    --notes "$recipes/notes/pair.md"
  triptych evaluate translation "$data/valid.en-de.tsv.gz" --models "$repository" --model base-en-de
fi
