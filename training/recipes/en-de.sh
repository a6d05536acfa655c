#!/usr/bin/env bash
# Trains and exports the embedded English-German model.
#
#   DATA=/path/to/parallel training/recipes/en-de.sh RUN REPOSITORY
#
# DATA contains the sentence pairs named below; RUN is the run folder to write, REPOSITORY the model repository.
# About an hour and a half on two CPU cores with AVX2.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
run=$1 repository=$2

# Large tensors are allocated and freed at every step; these settings avoid page faults.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 THP_MEM_ALLOC_ENABLE=1

triptych train translation --out "$run" --source-language en --target-language de \
  --train "$DATA/tatoeba.en-de.train.tsv.gz" --train "$DATA/docs-gnome.en-de.tsv.gz" --train "$DATA/docs-moz.en-de.tsv.gz" \
  --valid "$DATA/tatoeba.en-de.valid.tsv.gz" \
  --vocabulary-size 8000 --max-length 128 --max-positions 256 \
  --model-dim 256 --heads 4 --feedforward-dim 1024 --encoder-layers 4 --decoder-layers 2 --norm pre --dropout 0 \
  --optimizer muon --learning-rate 4e-3 --schedule linear --warmup-steps 150 --epochs 4 --batch-tokens 3000 \
  --average 1 --save-steps 200 --seed 1

triptych export "$run/model" --out "$repository" --name en-de --precision int8 --precision int8-shortlist \
  --shortlist "$DATA/tatoeba.en-de.train.tsv.gz" --shortlist "$DATA/docs-gnome.en-de.tsv.gz" --shortlist "$DATA/docs-moz.en-de.tsv.gz" \
  --valid "$DATA/tatoeba.en-de.valid.tsv.gz" --notes "$here/en-de.md"
