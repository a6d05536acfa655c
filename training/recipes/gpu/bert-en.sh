#!/usr/bin/env bash
# Trains, exports and measures the embedded English BERT.
#
#   DATA=/path/to/data training/recipes/gpu/bert-en.sh WORK REPOSITORY
#
# DATA contains the folders `text` and `parallel` with the files named below and in ../mix_bert_en.py. MINUTES is the training time (5).
# Without REPOSITORY nothing is exported.
source "$(dirname "$0")/common.sh"
work=$1 repository=${2:-}
valid=$DATA/text/wikipedia_en.valid.txt.xz

# All articles and books, and a mix with sentences on their own, as people type them.
[[ -e $work/mix.txt.gz ]] || { mkdir -p "$work" && python3 "$recipes/../mix_bert_en.py" "$DATA" "$work/mix.txt.gz"; }

train bert "$work/bert-en" --valid "$valid" \
  --train "$DATA/text/wikipedia_en.train.txt.xz" --train "$DATA/text/books_en.train.txt.xz" --train "$work/mix.txt.gz" \
  --vocabulary-size 8000 --sequence-length 128 --max-positions 256 --mask-share 0.2 --no-next-sentence \
  --model-dim 256 --heads 4 --feedforward-dim 1024 --layers 5 --norm pre --dropout 0 \
  --optimizer muon --learning-rate 4e-3 --schedule linear --warmup-steps 300 --weight-decay 0 --batch-tokens 65536 \
  --epochs 1000 --max-minutes "${MINUTES:-5}" --validate-every 1000 --average 1 --keep 1 --save-steps 100000 --seed 1
keep "$work/bert-en" "$work/bert-en/model"

if [[ -n $repository ]]; then
  triptych export "$work/bert-en/model" --out "$repository" --name bert-en --precision int8 --notes "$recipes/../bert-en.md"
  triptych evaluate fill-mask "$valid" --models "$repository" --model bert-en --sequence-length "${SEQUENCE_LENGTH:-128}"
fi
