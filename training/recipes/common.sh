# Settings and functions of the recipes in this folder.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Large tensors are allocated and freed at every step; these settings avoid page faults.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456 THP_MEM_ALLOC_ENABLE=1

# train TASK RUN OPTIONS...: start or resume a training; a finished one is not repeated.
train() {
  local task=$1 run=$2
  shift 2
  [ -e "$run/model/model.safetensors" ] || triptych train "$task" --out "$run" --resume "$@"
}

# average OUT CHECKPOINT...: write a checkpoint with the mean of the weights (Wortsman et al. 2022, "Model soups"), and the other files of the first.
average() {
  mkdir -p "$1" && cp -r "$2/." "$1"
  python - "$@" <<'PYTHON'
import sys
from pathlib import Path

from safetensors.torch import save_file

from triptych_training.checkpoints.folder import WEIGHTS, average_weights

out, *checkpoints = map(Path, sys.argv[1:])
save_file(average_weights(checkpoints), out / WEIGHTS, metadata={"format": "pt"})
PYTHON
}
