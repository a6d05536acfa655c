#!/usr/bin/env bash
# Trains and exports the embedded English-German model.
#
#   DATA=/path/to/parallel training/recipes/en-de.sh WORK REPOSITORY
#
# DATA contains the sentence pairs that mix_en_de.py names; WORK is a folder for the mix and the runs, REPOSITORY the model repository
# to write. About five hours on two CPU cores with AVX512-BF16. Running it again continues a stopped run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$1 repository=$2
valid=$DATA/tatoeba.en-de.valid.tsv.gz

# Large tensors are allocated and freed at every step; these settings avoid page faults.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 THP_MEM_ALLOC_ENABLE=1

[ -e "$work/data/train.tsv.gz" ] || python "$here/mix_en_de.py" "$DATA" "$work/data"

# train RUN OPTIONS...: a run with these options, continued if it was stopped, not repeated if it is complete.
train() {
  local run=$1
  shift
  [ -e "$run/model/model.safetensors" ] && return
  [ -e "$run/state.pt" ] && set -- --resume "$@"
  triptych train translation --out "$run" --source-language en --target-language de \
    --train "$work/data/train.tsv.gz" --valid "$valid" --vocabulary-size 12000 --max-length 128 --max-positions 256 \
    --model-dim 256 --heads 4 --feedforward-dim 1024 --encoder-layers 6 --decoder-layers 2 --norm pre --dropout 0 \
    --optimizer muon --label-smoothing 0.1 --average 1 --save-steps 50 "$@"
}

# First with a constant learning rate, which may be continued at any time; then the rate falls to zero, twice.
train "$work/constant" --learning-rate 3e-3 --batch-tokens 4000 --schedule constant --warmup-steps 200 --max-steps 4550 --ema-decay 0.999 --seed 1
train "$work/decay" --initial "$work/constant/model" --learning-rate 3e-3 --batch-tokens 4000 --schedule linear --warmup-steps 20 \
  --max-steps 1391 --ema-decay 0.98 --seed 3
train "$work/longer" --initial "$work/decay/model" --learning-rate 2.5e-3 --batch-tokens 6000 --schedule linear --warmup-steps 100 \
  --max-steps 2800 --ema-decay 0.98 --seed 7

# The mean of the weights of this run and of one that goes on (Wortsman et al. 2022, "Model soups") has a higher BLEU than both
# in ten of the eleven domains.
train "$work/more" --initial "$work/longer/model" --learning-rate 2.5e-3 --batch-tokens 6000 --schedule linear --warmup-steps 50 \
  --max-steps 1602 --ema-decay 0.98 --seed 13
mkdir -p "$work/mean" && cp -r "$work/more/model/." "$work/mean"
python - "$work" <<'PYTHON'
import sys
from pathlib import Path

from safetensors.torch import save_file

from triptych_training.checkpoints.folder import WEIGHTS, average_weights

work = Path(sys.argv[1])
mean = average_weights([work / run / "model" for run in ("longer", "more")])
save_file(mean, work / "mean" / WEIGHTS, metadata={"format": "pt"})
PYTHON

# Beams are worth one to two BLEU; greedy search takes 0.3 to 0.6 times as long.
echo '{"num_beams": 4}' > "$work/mean/generation_config.json"
triptych export "$work/mean" --out "$repository" --name en-de --precision int8 --precision int8-caches --valid "$valid" --notes "$here/en-de.md"
