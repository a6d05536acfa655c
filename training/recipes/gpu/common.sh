# What the recipes of this folder share; they source it. Settings, all of them environment variables:
#
#   GPUS            how many of this machine's GPUs train together (1)
#   PAUSE_MINUTES   a training that is not over by then saves its state and the recipe ends with code 75; the same command goes on (0: never)
#   TRIPTYCH        how the program is called where it is not installed, such as "python3 -m triptych_cli"
#   REHEARSAL       1: the same commands with models that take seconds on a CPU: do the files and options fit?

set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
gpus=${GPUS:-1}
PAUSED=75  # sysexits.h: a temporary failure, try again

if [[ -n ${TRIPTYCH:-} ]]; then
  read -ra program <<<"$TRIPTYCH"
  triptych() { "${program[@]}" "$@"; }
fi

# Appended to the commands of a rehearsal: of an option given twice the last one counts.
if [[ ${REHEARSAL:-} == 1 ]]; then
  # So many steps that a model has something to say: export refuses those that answer everything alike.
  loop=(--epochs 1000 --max-steps 300 --max-minutes 0 --validate-every 1000 --keep 0 --average 1 --save-steps 100 --accumulate 1 --no-compile
    --dropout 0 --learning-rate 5e-3 --warmup-steps 20)
  tiny_translation=("${loop[@]}" --vocabulary-size 340 --model-dim 32 --heads 2 --feedforward-dim 48 --encoder-layers 1 --decoder-layers 1
    --max-positions 64 --batch-tokens 400)
  tiny_bert=("${loop[@]}" --vocabulary-size 200 --model-dim 32 --heads 2 --feedforward-dim 48 --layers 1 --max-positions 64 --sequence-length 32
    --batch-tokens 400)
  tiny_vit=("${loop[@]}" --model-dim 32 --heads 2 --feedforward-dim 48 --layers 1 --hold-out 6 --batch-images 4)
  tiny_distill=(--beam-size 2 --max-length 12 --batch-tokens 400 --chunk 16)
  tiny_score=(--beam-size 2)
else
  tiny_translation=() tiny_bert=() tiny_vit=() tiny_distill=() tiny_score=()
fi

# launch COMMAND...: `triptych COMMAND...`, on every GPU.
launch() {
  if ((gpus > 1)); then
    torchrun --standalone --nproc-per-node "$gpus" -m triptych_cli "$@"
  else
    triptych "$@"
  fi
}

# train TASK RUN OPTIONS...: begins, goes on, or finds the training done. An unfinished one ends the recipe with code 75.
train() {
  local task=$1 run=$2 result
  shift 2
  local -n tiny="tiny_$task"
  if [[ -e $run/model/model.safetensors ]]; then
    return
  fi
  result=$(launch train "$task" --out "$run" --resume --pause-minutes "${PAUSE_MINUTES:-0}" "$@" "${tiny[@]}")
  if [[ $result != "$run/model" ]]; then
    echo "$run is not finished; the same command goes on with it" >&2
    exit $PAUSED
  fi
}

# distill TEACHER OUT OPTIONS...: unless it is there.
distill() {
  local teacher=$1 out=$2
  shift 2
  if [[ ! -e $out ]]; then
    launch distill "$teacher" --out "$out" "$@" "${tiny_distill[@]}"
  fi
}

# score CHECKPOINT PAIRS OPTIONS...: BLEU of the checkpoint, in PyTorch.
score() {
  local checkpoint=$1 pairs=$2
  shift 2
  triptych checkpoint score "$checkpoint" "$pairs" "$@" "${tiny_score[@]}"
}

# keep NAME CHECKPOINT: the checkpoint in pieces of at most 15 MiB beside the runs, to be carried away.
keep() {
  triptych checkpoint pack "$2" "$1" >/dev/null
}

# reversed FILE OUT: a packed file of pairs with its columns exchanged.
reversed() {
  gzip -dc "$1" | awk -F '\t' -v OFS='\t' '{print $2, $1}' | gzip -n >"$2.partial"
  mv "$2.partial" "$2"
}

# held_out FILE...: the English sentences of these packed validation sets, sorted.
held_out() {
  gzip -dc "$@" | cut -f 1 | LC_ALL=C sort -u
}

# without SENTENCES FILE OUT: the packed pairs whose English sentence is not among the sentences.
without() {
  gzip -dc "$2" | awk -F '\t' 'NR == FNR {held[$0]; next} !($1 in held)' "$1" - | gzip -n >"$3.partial"
  mv "$3.partial" "$3"
}
