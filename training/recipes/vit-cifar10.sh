#!/usr/bin/env bash
# Trains, exports and measures the embedded image classifier.
#
#   DATA=/path/to/cifar10/train training/recipes/vit-cifar10.sh WORK REPOSITORY
#
# DATA contains one folder of images for each of CIFAR-10's classes; WORK is a folder for the runs, REPOSITORY the model repository to
# write. About 200 minutes on two CPUs with AVX512-BF16. Running it again continues a stopped run.
source "$(dirname "$0")/common.sh"
work=$1 repository=$2

options=(
  --train "$DATA" --hold-out 5000 --drop-path 0.05
  --randaugment-operations 2 --randaugment-magnitude 0.25 --translate 0.125 --erase 0.1 --label-smoothing 0.1
  --optimizer muon --schedule linear --weight-decay 0.05 --batch-images 128 --precision bf16 --validate-every 2 --save-steps 300
)

# A run from scratch, one that goes on, and one that goes on with mixed images, which fits the held-out images less well alone. The mean
# of the last two (Wortsman et al. 2022, "Model soups") is better than both; two epochs without mixed images make it better again.
train vit "$work/first" "${options[@]}" --image-size 32 --patch-size 8 --stem deep --model-dim 160 --heads 5 --feedforward-dim 640 --layers 5 \
  --learning-rate 3e-3 --warmup-steps 100 --max-steps 9160 --ema-decay 0.998 --seed 1
train vit "$work/second" "${options[@]}" --initial "$work/first/model" --learning-rate 1.5e-3 --warmup-steps 100 --max-steps 4779 --ema-decay 0.998 --seed 2
train vit "$work/mixed" "${options[@]}" --initial "$work/second/model" --mixup 0.2 --cutmix 1.0 \
  --learning-rate 2e-3 --warmup-steps 100 --max-steps 6930 --ema-decay 0.999 --seed 3
average "$work/mean" "$work/second/model" "$work/mixed/model"
train vit "$work/last" "${options[@]}" --initial "$work/mean" --learning-rate 6e-4 --warmup-steps 50 --max-steps 731 --ema-decay 0.998 --seed 4

triptych export "$work/last/model" --out "$repository" --name vit-cifar10 --precision int8 --notes "$here/vit-cifar10.md"
triptych evaluate image-classification "$DATA" --hold-out 5000 --models "$repository" --model vit-cifar10
