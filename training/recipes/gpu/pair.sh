#!/usr/bin/env bash
# Trains a small model of one direction from the teacher's translations, and exports it.
#
#   DATA=/path/to/parallel training/recipes/gpu/pair.sh WORK en-de REPOSITORY       # or de-en, en-fr, fr-en
#
# Run it after teacher.sh, with the same WORK. The student learns the pairs, the teacher's translations of their sources
# (sequence-level knowledge distillation), and its translations of the other language pair's sentences. MINUTES is the training
# time (8). Without REPOSITORY nothing is exported; export needs no GPU and can be done elsewhere from WORK/<direction>.json.
source "$(dirname "$0")/common.sh"
work=$1 direction=$2 repository=${3:-}
source "$recipes/data.sh"
near=${direction%-*} far=${direction#*-}

pairs=() training=() shortlist=()
for set in "${sets[@]}"; do
  pairs+=(--pairs "$data/$set.$direction.tsv.gz")
  shortlist+=(--shortlist "$data/$set.$direction.tsv.gz")
done
# English sentences that only the other pair has: more to translate, of the same kind.
texts=()
case $direction in
  en-de) texts=(--text "$data/tatoeba.en-fr.tsv.gz" --text "$data/docs-gnome.en-fr.tsv.gz") ;;
  en-fr) texts=(--text "$data/tatoeba.en-de.tsv.gz" --text "$data/docs-gnome.en-de.tsv.gz") ;;
esac

distill "$work/teacher/model" "$work/distilled.$direction.tsv.gz" "${pairs[@]}" "${texts[@]}" --target-language "$far" \
  --beam-size 5 --batch-tokens 64000

train translation "$work/$direction" --source-language "$near" --target-language "$far" \
  --train "$work/distilled.$direction.tsv.gz" --valid "$data/valid.$direction.tsv.gz" \
  --vocabulary-size 8000 --max-length 128 --max-positions 256 \
  --model-dim 256 --heads 4 --feedforward-dim 1024 --encoder-layers 6 --decoder-layers 1 --norm pre --dropout 0 --label-smoothing 0.1 \
  --optimizer muon --learning-rate 4e-3 --schedule linear --warmup-steps 300 --batch-tokens 32000 \
  --epochs 1000 --max-minutes "${MINUTES:-8}" --validate-every 5 --average 1 --keep 2 --save-steps 1000 --compile --seed 1

score "$work/$direction/model" "$data/valid.$direction.tsv.gz"
keep "$work/$direction" "$work/$direction/model"

if [[ -n $repository ]]; then
  triptych export "$work/$direction/model" --out "$repository" --name "$direction" --precision int8 --precision int8-shortlist \
    "${shortlist[@]}" --valid "$data/valid.$direction.tsv.gz" --notes "$recipes/notes/pair.md"
  triptych evaluate translation "$data/valid.$direction.tsv.gz" --models "$repository" --model "$direction"
fi
