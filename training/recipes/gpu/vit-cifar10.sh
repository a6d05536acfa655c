#!/usr/bin/env bash
# Trains, exports and measures an image classifier of the embedded one's shape for CIFAR-10's ten classes.
#
#   DATA=/path/to/cifar10/train training/recipes/gpu/vit-cifar10.sh WORK REPOSITORY
#
# DATA contains one folder of images per class; the last 500 files of each are held out. MINUTES is the training time (4). Without
# REPOSITORY nothing is exported.
source "$(dirname "$0")/common.sh"
work=$1 repository=${2:-}

options=(--train "$DATA" --hold-out 5000 --drop-path 0.05 --image-size 32 --patch-size 8 --stem deep
  --model-dim 160 --heads 5 --feedforward-dim 640 --layers 5
  --randaugment-operations 2 --randaugment-magnitude 0.25 --translate 0.125 --erase 0.1 --label-smoothing 0.1
  --optimizer muon --schedule linear --weight-decay 0.05 --validate-every 1000 --keep 1 --save-steps 100000)

# Mixed images fit whole ones less well; a few epochs without make the model better again.
train vit "$work/mixed" "${options[@]}" --mixup 0.2 --cutmix 1 --learning-rate 4e-3 --warmup-steps 300 --batch-images 512 \
  --epochs 1000 --max-minutes "${MINUTES:-4}" --ema-decay 0.999 --seed 1
train vit "$work/vit-cifar10" "${options[@]}" --initial "$work/mixed/model" --learning-rate 6e-4 --warmup-steps 50 --batch-images 128 \
  --epochs 3 --ema-decay 0.998 --seed 4
keep "$work/vit-cifar10" "$work/vit-cifar10/model"

if [[ -n $repository ]]; then
  triptych export "$work/vit-cifar10/model" --out "$repository" --name vit-cifar10 --precision int8 --notes "$recipes/notes/vit-cifar10.md"
  triptych evaluate image-classification "$DATA" --hold-out "${HOLD_OUT:-5000}" --models "$repository" --model vit-cifar10
fi
