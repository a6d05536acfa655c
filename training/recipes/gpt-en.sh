#!/usr/bin/env bash
# Trains, exports and measures the embedded English language model.
#
#   DATA=/path/to/data training/recipes/gpt-en.sh WORK REPOSITORY
#
# DATA contains the folders `text` and `parallel` with the files named below and in mix_gpt_en.py; WORK is a folder for the runs,
# REPOSITORY the model repository to write. Three hours on two CPUs with AVX512-BF16. Running the script again continues a stopped
# run.
source "$(dirname "$0")/common.sh"
work=$1 repository=$2
valid=$DATA/text/wikipedia_en.valid.txt.xz

options=(
  --valid "$valid"
  --vocabulary-size 8000 --sequence-length 256 --max-positions 1024
  --model-dim 224 --heads 7 --kv-heads 1 --feedforward-dim 640 --layers 6
  --optimizer muon --schedule linear --batch-tokens 8192 --save-steps 50
)

# Paragraphs of books and articles first; then a mix in which stories have several paragraphs, and with short texts.
texts=(--train "$DATA/text/books_en.train.txt.xz" --train "$DATA/text/wikipedia_en.train.txt.xz")
train gpt "$work/first" "${options[@]}" "${texts[@]}" --learning-rate 3e-3 --warmup-steps 100 --max-steps 861 --seed 1
train gpt "$work/second" "${options[@]}" "${texts[@]}" --initial "$work/first/model" --learning-rate 2.5e-3 --warmup-steps 20 --max-steps 483 --seed 2
mix=$work/mix.txt.gz
[ -e "$mix" ] || python "$here/mix_gpt_en.py" "$DATA" "$mix"
train gpt "$work/third" "${options[@]}" --train "$mix" --initial "$work/second/model" --learning-rate 3e-3 --warmup-steps 50 --max-steps 2950 --seed 1

# Greedy search of so small a model repeats itself, so that texts are samples unless a request says otherwise.
echo '{"do_sample": true, "temperature": 0.7, "top_p": 0.9}' > "$work/third/model/generation_config.json"
triptych export "$work/third/model" --out "$repository" --name gpt-en --precision int8 --notes "$here/gpt-en.md"
triptych evaluate text-generation "$valid" --models "$repository" --model gpt-en
