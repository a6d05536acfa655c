#!/usr/bin/env bash
# Trains, exports and measures the embedded image classifier.
#
#   DATA=/path/to/cifar10/train training/recipes/vit-cifar10.sh RUN REPOSITORY
#
# DATA contains one folder of images for each of CIFAR-10's classes; RUN is the run folder to write, REPOSITORY the model repository.
# 9,160 steps (27 epochs): 103 minutes on two CPUs with AVX512-BF16 that had other work as well.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
run=$1 repository=$2

# Large tensors are allocated and freed at every step; these settings avoid page faults.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 THP_MEM_ALLOC_ENABLE=1

triptych train vit --out "$run" --train "$DATA" --hold-out 5000 --image-size 32 --patch-size 8 --stem deep \
  --model-dim 160 --heads 5 --feedforward-dim 640 --layers 5 --drop-path 0.05 \
  --randaugment-operations 2 --randaugment-magnitude 0.25 --translate 0.125 --erase 0.1 --label-smoothing 0.1 \
  --optimizer muon --learning-rate 3e-3 --schedule linear --warmup-steps 100 --weight-decay 0.05 --ema-decay 0.998 \
  --max-steps 9160 --batch-images 128 --precision bf16 --validate-every 2 --save-steps 200 --seed 1

triptych export "$run/model" --out "$repository" --name vit-cifar10 --precision int8 --notes "$here/vit-cifar10.md"
triptych evaluate image-classification "$DATA" --hold-out 5000 --models "$repository" --model vit-cifar10
