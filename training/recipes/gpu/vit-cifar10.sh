#!/usr/bin/env bash
# Trains, exports and measures the image classifier of CIFAR-10's ten classes.
#
#   DATA=/path/to/cifar10/train training/recipes/gpu/vit-cifar10.sh WORK REPOSITORY
#
# DATA contains one folder of images per class; the last 500 files of each are held out. Patches of 2 x 2 pixels after convolutions
# (as in Hassani et al. 2021, "Escaping the Big Data Paradigm with Compact Transformers"), RandAugment, random erasing, mixup and
# CutMix. MINUTES is the training time (25). Without REPOSITORY nothing is exported.
source "$(dirname "$0")/common.sh"
work=$1 repository=${2:-}

train vit "$work/vit-cifar10" --train "$DATA" --hold-out 5000 --image-size 32 --patch-size 2 --stem convolution \
  --model-dim 256 --heads 4 --feedforward-dim 512 --layers 7 --drop-path 0.1 \
  --randaugment-operations 2 --randaugment-magnitude 0.5 --translate 0.125 --erase 0.25 --mixup 0.8 --cutmix 1 --label-smoothing 0.1 \
  --optimizer muon --learning-rate 2e-3 --schedule cosine --warmup-steps 500 --weight-decay 0.05 --ema-decay 0.9995 --batch-images 512 \
  --epochs 1000 --max-minutes "${MINUTES:-25}" --validate-every 10 --keep 2 --save-steps 1000 --compile --seed 1

keep "$work/vit-cifar10" "$work/vit-cifar10/model"

if [[ -n $repository ]]; then
  triptych export "$work/vit-cifar10/model" --out "$repository" --name vit-cifar10 --precision int8 --notes "$recipes/notes/vit-cifar10.md"
  triptych evaluate image-classification "$DATA" --hold-out "${HOLD_OUT:-5000}" --models "$repository" --model vit-cifar10
fi
