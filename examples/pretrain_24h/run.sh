#!/usr/bin/env bash
# The 24-hour recipe of "Should You Mask 15% in Masked Language Modeling?" (arXiv 2202.08005): RoBERTa-large with pre-norm,
# 128 tokens, 4,096 rows an update, 23,000 updates. Run it with --help; README.md says what it needs.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BATCH=4096 # rows an update, whatever the number of GPUs

usage() {
    cat <<'END'
usage: run.sh --gpus N [options] DATA SAVE_DIR [-- options of fairseq-train]

Pretrains RoBERTa-large on DATA, what fairseq-preprocess wrote (several folders: joined by ':'), for 23,000 updates of 4,096
rows. SAVE_DIR gets checkpoints; the same command again goes on from the last one. What stands behind -- overrides the recipe.

  --gpus N         GPUs of this machine, 1, 2, 8, ...
  --rows N         rows on a GPU at a time (default 64); less needs less memory, and the batch stays 4,096
  --nodes N        machines with as many GPUs each (default 1); the command is started on every one of them
  --node-rank R    which of them this is, from 0 (default: $SLURM_NODEID)
  --master H:PORT  host of machine 0, and a free port there (default localhost:29500, for one machine)
  --cpu            to try it out: one process without a GPU, no --fp16
  --dry-run        print the command, and run nothing

examples:
  bash examples/pretrain_24h/run.sh --gpus 8 data-bin checkpoints
  bash examples/pretrain_24h/run.sh --gpus 1 --rows 32 data-bin checkpoints --dry-run
  bash examples/pretrain_24h/run.sh --gpus 8 data-bin checkpoints-15 -- --corruption-rate 0.15 --prediction-rate 0.15
  bash examples/pretrain_24h/run.sh --gpus 8 --nodes 2 --node-rank 0 --master node1:29500 data-bin checkpoints
END
}

fail() {
    echo "run.sh: $*" >&2
    exit 1
}

gpus="" rows=64 nodes=1 node_rank=${SLURM_NODEID:-} master="" cpu="" dry_run=""
places=() more=()
while [ $# -gt 0 ]; do
    case $1 in
    --gpus | --rows | --nodes | --node-rank | --master)
        [ $# -gt 1 ] || fail "$1 needs a value"
        case $1 in
        --gpus) gpus=$2 ;;
        --rows) rows=$2 ;;
        --nodes) nodes=$2 ;;
        --node-rank) node_rank=$2 ;;
        --master) master=$2 ;;
        esac
        shift 2
        ;;
    --cpu) cpu=yes && shift ;;
    --dry-run) dry_run=yes && shift ;;
    -h | --help) usage && exit 0 ;;
    --)
        shift
        more=("$@")
        break
        ;;
    -*) fail "unknown option $1; options of fairseq-train stand behind --" ;;
    *) places+=("$1") && shift ;;
    esac
done

whole() { # NAME VALUE LEAST
    [[ $2 =~ ^(0|[1-9][0-9]{0,5})$ ]] && [ "$2" -ge "$3" ] || fail "$1 must be a whole number of at least $3, got '$2'"
}

[ -z "$cpu" ] || gpus=${gpus:-1}
[ -n "$gpus" ] || fail "--gpus must say how many GPUs this machine has for the run"
whole --gpus "$gpus" 1
whole --rows "$rows" 1
whole --nodes "$nodes" 1
[ ${#places[@]} -eq 2 ] || fail "must get DATA and SAVE_DIR, got ${#places[@]} of them; see --help"
world=$((gpus * nodes))
[ $((BATCH % (world * rows))) -eq 0 ] ||
    fail "GPUs x rows must divide the batch of $BATCH, got $world GPUs x $rows rows (--gpus, --nodes, --rows)"
[ -z "$cpu" ] || [ "$world" -eq 1 ] || fail "--cpu is one process: --gpus and --nodes must be 1, got $gpus and $nodes"

# Ranks and the address are given outright. Left to itself fairseq looks at the variables of Slurm and torchrun, in an order
# that its two generations differ in, and takes every GPU that it sees.
distributed=(--distributed-world-size "$world")
environment=()
if [ "$nodes" -gt 1 ]; then
    [ -n "$master" ] || fail "--nodes $nodes needs --master HOST:PORT, the host of machine 0"
    [ -n "$node_rank" ] || fail "--nodes $nodes needs --node-rank, which machine this is"
    whole --node-rank "$node_rank" 0
    [ "$node_rank" -lt "$nodes" ] || fail "--node-rank must be below --nodes, $nodes, got $node_rank"
    distributed+=(--distributed-rank $((node_rank * gpus)))
    # fairseq starts a process for every GPU that it sees, up to the number of ranks on all machines
    visible=${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((gpus - 1)))}
    IFS=, read -ra listed <<<"$visible"
    [ ${#listed[@]} -eq "$gpus" ] || fail "--gpus must be the number of GPUs in CUDA_VISIBLE_DEVICES, $visible, got $gpus"
    environment=(env "CUDA_VISIBLE_DEVICES=$visible")
fi
if [ "$world" -gt 1 ]; then
    master=${master:-localhost:29500}
    [[ $master =~ ^[^:]+:[0-9]+$ ]] || fail "--master must be HOST:PORT, got '$master'"
    distributed+=(--distributed-init-method "tcp://$master")
fi
IFS=: read -ra folders <<<"${places[0]}"
for i in "${!folders[@]}"; do
    [ -n "$dry_run" ] || [ -f "${folders[$i]}/dict.txt" ] ||
        fail "${folders[$i]}: no dict.txt in it: DATA is what fairseq-preprocess wrote"
    folders[$i]=$(realpath -m -- "${folders[$i]}")
done
data=$(IFS=: && echo "${folders[*]}")
save_dir=$(realpath -m -- "${places[1]}")

precision=(--fp16)
[ -z "$cpu" ] || precision=(--cpu)

command=(
    ${environment[@]+"${environment[@]}"}
    fairseq-train "$data" --user-dir "$ROOT/fairseq_maskplugins" "${precision[@]}"
    --task decoupled_mlm --criterion decoupled_mlm --corruption-rate 0.4 --prediction-rate 0.4
    --tokens-per-sample 128 --arch roberta_large --encoder-normalize-before --max-positions 128
    --dropout 0.1 --attention-dropout 0.1
    --optimizer adam --adam-betas "(0.9,0.98)" --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 0.0
    --lr 2e-3 --lr-scheduler polynomial_decay --warmup-updates 1380 --total-num-update 23000 --max-update 23000
    --batch-size "$rows" --update-freq $((BATCH / world / rows)) --num-workers 4
    --no-epoch-checkpoints --save-interval-updates 1000 --keep-interval-updates 2
    --save-dir "$save_dir" --log-format simple --log-interval 100
    "${distributed[@]}" ${more[@]+"${more[@]}"}
)
if [ -n "$dry_run" ]; then
    printf '%q ' "${command[@]}"
    echo
    exit 0
fi
command -v fairseq-train >/dev/null || fail "fairseq-train is not on the PATH: activate the environment that fairseq is in"
exec "${command[@]}"
