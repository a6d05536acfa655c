#!/usr/bin/env bash
# Trains, exports and measures the embedded English language model.
#
#   DATA=/path/to/text training/recipes/gpt-en.sh RUN REPOSITORY
#
# DATA contains the text files named below; RUN is the run folder to write, REPOSITORY the model repository. MINUTES (240) is the time of the
# training on one CPU core; running the script again continues a stopped run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
run=$1 repository=$2

# Large tensors are allocated and freed at every step; these settings avoid page faults.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 THP_MEM_ALLOC_ENABLE=1

resume=()
[ -e "$run/state.pt" ] && resume=(--resume)
[ -e "$run/model/model.safetensors" ] || triptych train gpt --out "$run" "${resume[@]}" \
  --train "$DATA/books_en.train.txt.xz" --train "$DATA/wikipedia_en.train.txt.xz" \
  --valid "$DATA/books_en.valid.txt.xz" --valid "$DATA/wikipedia_en.valid.txt.xz" \
  --vocabulary-size 8000 --sequence-length 256 --max-positions 1024 \
  --model-dim 224 --heads 7 --kv-heads 1 --feedforward-dim 640 --layers 6 \
  --optimizer muon --learning-rate 3e-3 --schedule linear --warmup-steps 100 \
  --max-minutes "${MINUTES:-240}" --batch-tokens 8192 --save-steps 50 --seed 1

triptych export "$run/model" --out "$repository" --name gpt-en --precision int8 --notes "$here/gpt-en.md"
triptych evaluate text-generation "$DATA/wikipedia_en.valid.txt.xz" --models "$repository" --model gpt-en
