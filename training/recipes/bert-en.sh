#!/usr/bin/env bash
# Trains, exports and measures the embedded English BERT.
#
#   DATA=/path/to/text training/recipes/bert-en.sh RUN REPOSITORY
#
# DATA contains the text files named below; RUN is the run folder to write, REPOSITORY the model repository.
# 78 minutes on two CPUs with AVX512-BF16 that had other work as well.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
run=$1 repository=$2

# Large tensors are allocated and freed at every step; these settings avoid page faults.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 THP_MEM_ALLOC_ENABLE=1

triptych train bert --out "$run" --train "$DATA/wikipedia_en.train.txt.xz" --valid "$DATA/wikipedia_en.valid.txt.xz" \
  --vocabulary-size 8000 --sequence-length 128 --max-positions 256 --mask-share 0.2 --no-next-sentence \
  --model-dim 256 --heads 4 --feedforward-dim 1024 --layers 5 --norm pre --dropout 0 \
  --optimizer muon --learning-rate 3e-3 --schedule linear --warmup-steps 100 --weight-decay 0 \
  --max-steps 4202 --batch-tokens 8192 --precision bf16 --save-steps 250 --seed 1

triptych export "$run/model" --out "$repository" --name bert-en --precision int8 --notes "$here/bert-en.md"
triptych evaluate fill-mask "$DATA/wikipedia_en.valid.txt.xz" --models "$repository" --model bert-en
