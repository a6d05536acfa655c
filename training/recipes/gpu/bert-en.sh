#!/usr/bin/env bash
# Trains, exports and measures an English BERT on Wikipedia and books.
#
#   DATA=/path/to/text training/recipes/gpu/bert-en.sh WORK REPOSITORY
#
# DATA contains {wikipedia_en,books_en}.{train,valid}.txt.xz. MINUTES is the training time (25). Without REPOSITORY nothing is exported.
source "$(dirname "$0")/common.sh"
work=$1 repository=${2:-}

train bert "$work/bert-en" --train "$DATA/wikipedia_en.train.txt.xz" --train "$DATA/books_en.train.txt.xz" \
  --valid "$DATA/wikipedia_en.valid.txt.xz" \
  --vocabulary-size 8000 --sequence-length 128 --max-positions 256 --mask-share 0.2 --no-next-sentence \
  --model-dim 384 --heads 6 --feedforward-dim 1536 --layers 8 --norm pre --dropout 0 \
  --optimizer muon --learning-rate 2e-3 --schedule linear --warmup-steps 500 --weight-decay 0.01 --batch-tokens 65536 \
  --epochs 1000 --max-minutes "${MINUTES:-25}" --validate-every 5 --keep 2 --save-steps 1000 --compile --seed 1

keep "$work/bert-en" "$work/bert-en/model"

if [[ -n $repository ]]; then
  triptych export "$work/bert-en/model" --out "$repository" --name bert-en --precision int8 --notes "$recipes/notes/bert-en.md"
  triptych evaluate fill-mask "$DATA/wikipedia_en.valid.txt.xz" --models "$repository" --model bert-en \
    --sequence-length "${SEQUENCE_LENGTH:-128}"
fi
