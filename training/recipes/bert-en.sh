#!/usr/bin/env bash
# Trains, exports and measures the embedded English BERT.
#
#   DATA=/path/to/data training/recipes/bert-en.sh WORK REPOSITORY
#
# DATA contains the folders `text` and `parallel` with the files named below and in mix_bert_en.py; WORK is a folder for the runs,
# REPOSITORY the model repository to write. Two and a half hours on two CPUs with AVX512-BF16 that had other work as well.
source "$(dirname "$0")/common.sh"
work=$1 repository=$2
valid=$DATA/text/wikipedia_en.valid.txt.xz

options=(
  --valid "$valid"
  --vocabulary-size 8000 --sequence-length 128 --max-positions 256 --mask-share 0.2 --no-next-sentence
  --model-dim 256 --heads 4 --feedforward-dim 1024 --layers 5 --norm pre --dropout 0
  --optimizer muon --schedule linear --weight-decay 0 --average 1 --batch-tokens 8192 --precision bf16 --save-steps 250
)

# Articles first, which teach the most; then mixes with books and with sentences on their own, as people type them.
train bert "$work/articles" "${options[@]}" --train "$DATA/text/wikipedia_en.train.txt.xz" --learning-rate 3e-3 --warmup-steps 100 --max-steps 4202 --seed 1
before=articles
while read -r mix rate steps; do
  [ -e "$work/mix-$mix.txt.gz" ] || python "$here/mix_bert_en.py" "$DATA" "$work/mix-$mix.txt.gz" --seed "$mix"
  train bert "$work/mix-$mix" "${options[@]}" --initial "$work/$before/model" --train "$work/mix-$mix.txt.gz" --learning-rate "$rate" --warmup-steps 40 --max-steps "$steps" --seed "$mix"
  before=mix-$mix
done <<< "1 2e-3 1228
2 1e-3 476
3 1.2e-3 400"

triptych export "$work/mix-3/model" --out "$repository" --name bert-en --precision int8 --notes "$here/bert-en.md"
triptych evaluate fill-mask "$valid" --models "$repository" --model bert-en
