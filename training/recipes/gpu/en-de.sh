#!/usr/bin/env bash
# Trains and exports an English-German model of the embedded one's shape: a teacher, its translations of 1.5 million sentences, and a small student.
#
#   DATA=/path/to/data training/recipes/gpu/en-de.sh WORK REPOSITORY
#
# DATA contains the folders `parallel` and `text` with the files that ../mix_en_de.py and ../texts_en.py name. TEACHER_MINUTES (8) and
# MINUTES (6) are the training times. Without REPOSITORY nothing is exported; export needs no GPU and can be done elsewhere from
# WORK/en-de-student.json.
source "$(dirname "$0")/common.sh"
work=$1 repository=${2:-}
valid=$DATA/parallel/tatoeba.en-de.valid.tsv.gz
pairs=$work/mix/train.tsv.gz

[[ -e $pairs ]] || python3 "$recipes/../mix_en_de.py" "$DATA/parallel" "$work/mix"

common=(--source-language en --target-language de --valid "$valid" --vocabulary-size 12000 --max-length 128 --max-positions 256
  --norm pre --label-smoothing 0.1 --optimizer muon --schedule linear --epochs 1000 --validate-every 1000 --average 1 --keep 1
  --save-steps 100000)

train translation "$work/en-de-teacher" --train "$pairs" "${common[@]}" \
  --model-dim 512 --heads 8 --feedforward-dim 2048 --encoder-layers 8 --decoder-layers 4 --dropout 0.1 \
  --learning-rate 2.5e-3 --warmup-steps 300 --batch-tokens 65536 --max-minutes "${TEACHER_MINUTES:-8}" --seed 1

[[ -e $work/texts.txt.gz ]] || python3 "$recipes/../texts_en.py" "$DATA" "$work/mix" "$work/texts.txt.gz"
distill "$work/en-de-teacher/model" "$work/translated.tsv.gz" --text "$work/texts.txt.gz" --beam-size 4 --batch-tokens 64000 --precision fp16

train translation "$work/en-de-student" --train "$pairs" --train "$work/translated.tsv.gz" "${common[@]}" \
  --tokenizer "$work/en-de-teacher/model/tokenizer.json" \
  --model-dim 256 --heads 4 --feedforward-dim 1024 --encoder-layers 6 --decoder-layers 2 --dropout 0 \
  --learning-rate 4e-3 --warmup-steps 300 --batch-tokens 49152 --max-minutes "${MINUTES:-6}" --ema-decay 0.98 --seed 1
keep "$work/en-de-student" "$work/en-de-student/model"

# Beams are worth one to two BLEU; greedy search takes 0.3 to 0.6 times as long.
echo '{"num_beams": 4}' >"$work/en-de-student/model/generation_config.json"
if [[ -n $repository ]]; then
  triptych export "$work/en-de-student/model" --out "$repository" --name en-de-student --precision int8 --precision int8-caches --valid "$valid" \
    --notes "$recipes/notes/en-de.md"
fi
