#!/usr/bin/env bash
# Trains, exports and measures the embedded English language model.
#
#   DATA=/path/to/text training/recipes/gpt-en.sh WORK REPOSITORY
#
# DATA contains the text files named below; WORK is a folder for the runs, REPOSITORY the model repository to write. About an hour on two
# CPU cores with AVX512-BF16. Running the script again continues a stopped run.
source "$(dirname "$0")/common.sh"
work=$1 repository=$2

options=(
  --train "$DATA/books_en.train.txt.xz" --train "$DATA/wikipedia_en.train.txt.xz" --valid "$DATA/wikipedia_en.valid.txt.xz"
  --vocabulary-size 8000 --sequence-length 256 --max-positions 1024
  --model-dim 224 --heads 7 --kv-heads 1 --feedforward-dim 640 --layers 6
  --optimizer muon --schedule linear --batch-tokens 8192 --save-steps 50
)

train gpt "$work/first" "${options[@]}" --learning-rate 3e-3 --warmup-steps 100 --max-steps 861 --seed 1
train gpt "$work/second" "${options[@]}" --initial "$work/first/model" --learning-rate 2.5e-3 --warmup-steps 20 --max-steps 483 --seed 2

# Greedy search of so small a model repeats itself, so that texts are samples unless a request says otherwise.
echo '{"do_sample": true, "temperature": 0.7, "top_p": 0.9}' > "$work/second/model/generation_config.json"
triptych export "$work/second/model" --out "$repository" --name gpt-en --precision int8 --notes "$here/gpt-en.md"
triptych evaluate text-generation "$DATA/wikipedia_en.valid.txt.xz" --models "$repository" --model gpt-en
