# Functions and settings of all recipes in this folder. Environment variables:
#
#   GPUS            number of this machine's GPUs to train on (1)
#   SHARDS          processes that share the GPU in a distillation (3)
#   PAUSE_MINUTES   limit of one run: an unfinished training saves its state and the recipe ends with code 75; the same command continues (0: none)
#   TRIPTYCH        command of the program if it is not installed, such as "python3 -m triptych_cli"
#   REHEARSAL       1: run the same commands with tiny models, in seconds on a CPU, to check files and options

set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
gpus=${GPUS:-1}
PAUSED=75  # sysexits.h: a temporary failure, try again

if [[ -n ${TRIPTYCH:-} ]]; then
  read -ra program <<<"$TRIPTYCH"
  triptych() { "${program[@]}" "$@"; }
fi

# Appended to the commands of a rehearsal; the last of two equal options counts.
if [[ ${REHEARSAL:-} == 1 ]]; then
  # Enough steps for varied results: export rejects models that give the same result for every input.
  loop=(--epochs 1000 --max-steps 400 --max-minutes 0 --validate-every 1000 --keep 0 --average 1 --save-steps 100 --accumulate 1 --no-compile
    --dropout 0 --learning-rate 5e-3 --warmup-steps 20)
  tiny_translation=("${loop[@]}" --vocabulary-size 340 --model-dim 32 --heads 2 --feedforward-dim 48 --encoder-layers 1 --decoder-layers 1
    --max-positions 64 --batch-tokens 400)
  tiny_bert=("${loop[@]}" --vocabulary-size 200 --model-dim 32 --heads 2 --feedforward-dim 48 --layers 1 --max-positions 64 --sequence-length 32
    --batch-tokens 400)
  tiny_vit=("${loop[@]}" --model-dim 32 --heads 2 --feedforward-dim 48 --layers 1 --hold-out 36 --batch-images 4)
  tiny_distill=(--beam-size 2 --max-length 12 --batch-tokens 400 --chunk 16)
  tiny_score=(--beam-size 2)
else
  tiny_translation=() tiny_bert=() tiny_vit=() tiny_distill=() tiny_score=()
fi

# launch COMMAND...: run `triptych COMMAND...` on every GPU.
launch() {
  if ((gpus > 1)); then
    torchrun --standalone --nproc-per-node "$gpus" -m triptych_cli "$@"
  else
    triptych "$@"
  fi
}

# train TASK RUN OPTIONS...: start or resume a training, or skip a finished one. An unfinished one ends the recipe with code 75.
train() {
  local task=$1 run=$2 result
  shift 2
  local -n tiny="tiny_$task"
  if [[ -e $run/model/model.safetensors ]]; then
    return
  fi
  result=$(launch train "$task" --out "$run" --resume --pause-minutes "${PAUSE_MINUTES:-0}" "$@" "${tiny[@]}")
  if [[ $result != "$run/model" ]]; then
    echo "$run is not finished; run the same command again to continue" >&2
    exit $PAUSED
  fi
}

# distill TEACHER OUT OPTIONS...: write the teacher's translations, unless OUT exists. One GPU is shared by several processes, since a
# search also needs much time between its kernels.
distill() {
  local teacher=$1 out=$2 shard shards=${SHARDS:-3}
  shift 2
  if [[ -e $out ]]; then
    return
  fi
  if ((gpus > 1)); then
    launch distill "$teacher" --out "$out" "$@" "${tiny_distill[@]}"
    return
  fi
  local pid pids=() failed=0
  for ((shard = 0; shard < shards; shard++)); do
    triptych distill "$teacher" --out "$out" "$@" "${tiny_distill[@]}" --shard "$shard/$shards" &
    pids+=($!)
  done
  trap 'kill "${pids[@]}"' INT TERM  # which do not reach processes in the background
  for pid in "${pids[@]}"; do
    wait "$pid" || failed=$?
  done
  trap - INT TERM
  return $failed
}

# score CHECKPOINT PAIRS OPTIONS...: print the checkpoint's BLEU, measured in PyTorch.
score() {
  local checkpoint=$1 pairs=$2
  shift 2
  triptych checkpoint score "$checkpoint" "$pairs" "$@" "${tiny_score[@]}"
}

# keep NAME CHECKPOINT: pack the checkpoint into pieces of at most 15 MiB, to copy to another machine.
keep() {
  triptych checkpoint pack "$2" "$1" >/dev/null
}

# reversed FILE OUT: write a compressed file of pairs with its columns exchanged.
reversed() {
  gzip -dc "$1" | awk -F '\t' -v OFS='\t' '{print $2, $1}' | gzip -n >"$2.partial"
  mv "$2.partial" "$2"
}

# held_out FILE...: print the English sentences of compressed validation sets, sorted.
held_out() {
  gzip -dc "$@" | cut -f 1 | LC_ALL=C sort -u
}

# without SENTENCES FILE OUT: write the pairs of a compressed file whose English sentence is not in SENTENCES.
without() {
  gzip -dc "$2" | awk -F '\t' 'NR == FNR {held[$0]; next} !($1 in held)' "$1" - | gzip -n >"$3.partial"
  mv "$3.partial" "$3"
}
