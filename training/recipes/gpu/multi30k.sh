#!/usr/bin/env bash
# Trains the Multi30k English-German benchmark model with three seeds, and scores each on test_2016_flickr in both conventions.
#
#   DATA=/path/to/multi30k training/recipes/gpu/multi30k.sh WORK REPOSITORY
#
# DATA contains {train,val,test_2016_flickr}.{en,de}.gz, one caption per line. Shape and settings are those of the small model of Wu et
# al. 2021 ("Good for Misconceived Reasons", 4 layers, d 128), but captions keep their capital letters. SEEDS are the seeds ("1 2 3");
# the first one's model is exported, if there is a REPOSITORY.
source "$(dirname "$0")/common.sh"
work=$1 repository=${2:-}
read -ra seeds <<<"${SEEDS:-1 2 3}"
test_pairs=$DATA/test_2016_flickr.en.gz::$DATA/test_2016_flickr.de.gz

for seed in "${seeds[@]}"; do
  run=$work/multi30k-$seed
  train translation "$run" --source-language en --target-language de \
    --train "$DATA/train.en.gz::$DATA/train.de.gz" --valid "$DATA/val.en.gz::$DATA/val.de.gz" \
    --vocabulary-size 10000 --max-length 128 --max-positions 256 \
    --model-dim 128 --heads 4 --feedforward-dim 256 --encoder-layers 4 --decoder-layers 4 --norm post --dropout 0.3 --label-smoothing 0.1 \
    --optimizer adam --learning-rate 5e-3 --schedule inverse-sqrt --warmup-steps 2000 --clip-norm 0 --batch-tokens 4096 \
    --epochs 80 --validate-every 1 --average 10 --keep 10 --save-steps 2000 --seed "$seed"
  score "$run/model" "$test_pairs" --beam-size 5 --json | tee "$run/test_2016_flickr.json"
  keep "$work/multi30k-$seed" "$run/model"
done

python3 - "${seeds[@]/#/$work/multi30k-}" <<'PYTHON'
import json, statistics, sys

scores = [json.load(open(f"{run}/test_2016_flickr.json")) for run in sys.argv[1:]]
for name in ("literature", "bleu"):
    values = [score[name] for score in scores]
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    print(f"{name}: mean {statistics.mean(values):.2f}, standard deviation {spread:.2f}, of {', '.join(f'{value:.2f}' for value in values)}")
    print(f"  {scores[0][f'{name}_signature' if name != 'bleu' else 'signature']}")
PYTHON

if [[ -n $repository ]]; then
  triptych export "$work/multi30k-${seeds[0]}/model" --out "$repository" --name multi30k-en-de --precision int8 --precision fp32 \
    --notes "$recipes/notes/multi30k.md"
  triptych evaluate translation "$test_pairs" --models "$repository" --model multi30k-en-de --beam-size 5 --literature de
fi
