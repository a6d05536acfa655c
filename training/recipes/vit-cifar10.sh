#!/usr/bin/env bash
# Trains, exports and measures the embedded image classifier.
#
#   DATA=/path/to/cifar10/train training/recipes/vit-cifar10.sh WORK REPOSITORY
#
# DATA contains one folder of images for each of CIFAR-10's classes; WORK is a folder for the runs, REPOSITORY the model repository to
# write. About 200 minutes on two CPUs with AVX512-BF16. Running it again continues a stopped run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$1 repository=$2

# Large tensors are allocated and freed at every step; these settings avoid page faults.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 THP_MEM_ALLOC_ENABLE=1

# train RUN OPTIONS...: a run with these options, continued if it was stopped, not repeated if it is complete.
train() {
  local run=$1
  shift
  [ -e "$run/model/model.safetensors" ] && return
  [ -e "$run/state.pt" ] && set -- --resume "$@"
  triptych train vit --out "$run" --train "$DATA" --hold-out 5000 --drop-path 0.05 \
    --randaugment-operations 2 --randaugment-magnitude 0.25 --translate 0.125 --erase 0.1 --label-smoothing 0.1 \
    --optimizer muon --schedule linear --weight-decay 0.05 --batch-images 128 --precision bf16 --validate-every 2 --save-steps 300 "$@"
}

# A run from scratch, one that goes on, and one that goes on with mixed images, which fits the held-out images less well alone. The mean
# of the last two (Wortsman et al. 2022, "Model soups") is better than both; two epochs without mixed images make it better again.
train "$work/first" --image-size 32 --patch-size 8 --stem deep --model-dim 160 --heads 5 --feedforward-dim 640 --layers 5 \
  --learning-rate 3e-3 --warmup-steps 100 --max-steps 9160 --ema-decay 0.998 --seed 1
train "$work/second" --initial "$work/first/model" --learning-rate 1.5e-3 --warmup-steps 100 --max-steps 4779 --ema-decay 0.998 --seed 2
train "$work/mixed" --initial "$work/second/model" --mixup 0.2 --cutmix 1.0 \
  --learning-rate 2e-3 --warmup-steps 100 --max-steps 6930 --ema-decay 0.999 --seed 3
mkdir -p "$work/mean" && cp -r "$work/second/model/." "$work/mean"
python - "$work" <<'PYTHON'
import sys
from pathlib import Path

from safetensors.torch import save_file

from triptych_training.checkpoints.folder import WEIGHTS, average_weights

work = Path(sys.argv[1])
mean = average_weights([work / run / "model" for run in ("second", "mixed")])
save_file(mean, work / "mean" / WEIGHTS, metadata={"format": "pt"})
PYTHON
train "$work/last" --initial "$work/mean" --learning-rate 6e-4 --warmup-steps 50 --max-steps 731 --ema-decay 0.998 --seed 4

triptych export "$work/last/model" --out "$repository" --name vit-cifar10 --precision int8 --notes "$here/vit-cifar10.md"
triptych evaluate image-classification "$DATA" --hold-out 5000 --models "$repository" --model vit-cifar10
