"""What the study consists of: settings, the commands of every step, and what their logs say."""

import json
import sys
from pathlib import Path

from jobs import Step

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from commands import PLUGINS  # noqa: E402

# what is pretrained: (corruption rate, prediction rate); the pairs are the paper's
SETTINGS = {
    "none": None,
    "0.15": (0.15, 0.15),
    "0.4": (0.4, 0.4),
    "0.8": (0.8, 0.8),
    "0.4-0.2": (0.4, 0.2),
    "0.2-0.4": (0.2, 0.4),
}
COMMON_RATE = 0.15  # at which the loss of every model is measured
LENGTH = 16
MODEL = (
    "--arch roberta_base --untie-weights-roberta --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 "
    f"--encoder-attention-heads 4 --max-positions {LENGTH}"
)
ADAM = "--optimizer adam --adam-betas (0.9,0.98) --weight-decay 0.01 --clip-norm 1.0 --lr-scheduler polynomial_decay".split()


def pretrain_command(args, folder, setting, seed):
    corruption, prediction = SETTINGS[setting]
    updates = args.updates
    return [
        *("fairseq_cli.train", args.out / "data" / "pretrain", "--user-dir", PLUGINS, *args.model_options.split(), *ADAM),
        *"--task decoupled_mlm --criterion decoupled_mlm --sample-break-mode eos --shorten-method truncate".split(),
        *"--dropout 0.0 --attention-dropout 0.0".split(),
        *("--corruption-rate", corruption, "--prediction-rate", prediction, "--tokens-per-sample", args.length),
        *("--lr", args.lr, "--warmup-updates", updates // 10, "--total-num-update", updates, "--max-update", updates),
        *("--batch-size", args.rows, "--num-workers", 0, "--seed", seed, "--disable-validation"),
        *("--save-interval-updates", max(1, updates // 4), "--keep-interval-updates", 1, "--no-epoch-checkpoints"),
        *("--log-format", "json", "--log-interval", max(1, updates // 10), "--cpu", "--save-dir", folder),
    ]


def measure_command(args, checkpoint):
    """The loss on the held-out text, at the common rate, whatever the model was trained at."""
    return [
        *("fairseq_cli.validate", args.out / "data" / "pretrain", "--user-dir", PLUGINS, "--path", checkpoint),
        *("--task", "decoupled_mlm", "--mask-prob", COMMON_RATE, "--tokens-per-sample", args.length),
        *("--corruption-rate", COMMON_RATE, "--prediction-rate", COMMON_RATE, "--seed", 1, "--valid-subset", "valid"),
        *"--sample-break-mode eos --shorten-method truncate --required-batch-size-multiple 1 --batch-size 256 "
        "--num-workers 0 --log-format json --cpu".split(),
    ]


def finetune_command(args, checkpoint, task, seed):
    updates = args.finetune_updates
    start = ["--finetune-from-model", checkpoint] if checkpoint else []
    return [
        *("fairseq_cli.train", args.out / "data" / task, "--user-dir", PLUGINS, *args.model_options.split(), *ADAM),
        *"--task sentence_prediction --criterion sentence_prediction --init-token 0 --separator-token 2".split(),
        *("--num-classes", args.classes[task], "--shorten-method", "truncate", "--dropout", 0.1, "--attention-dropout", 0.1),
        *("--lr", args.finetune_lr, "--warmup-updates", updates // 10, "--total-num-update", updates),
        *("--max-update", updates, "--batch-size", 32, "--batch-size-valid", 256, "--num-workers", 0, "--seed", seed),
        # both parts are scored once, after the last update: no checkpoint is chosen
        *"--required-batch-size-multiple 1 --valid-subset valid,test --validate-interval 100000".split(),
        *"--no-save --log-format json --cpu".split(),
        *("--log-interval", updates, *start),
    ]


def logged(text, marker, key):
    """The last value of a key in fairseq's log."""
    lines = [line.split(marker, 1)[1] for line in text.splitlines() if marker in line]
    return float(json.loads(lines[-1])[key])


def read_pretrained(text):
    return {
        "updates": int(logged(text, "| train_inner | ", "num_updates")),
        "train_loss": logged(text, "| train_inner | ", "loss"),
        "corruption": logged(text, "| train_inner | ", "corruption_rate"),
        "prediction": logged(text, "| train_inner | ", "prediction_rate"),
    }


def read_measured(text):
    return {"loss": logged(text, "| valid | ", "valid_loss")}


def read_finetuned(text):
    return {"dev": logged(text, "| valid | ", "valid_accuracy"), "test": logged(text, "| test | ", "test_accuracy")}


def plan(args):
    """A chain of steps for each seed and setting; seeds outside, so that a study cut short has all settings."""
    chains, runs = [], args.out / "runs"
    for seed in args.seeds:
        for setting in args.only:
            name, chain, checkpoint = f"{setting}-seed{seed}", [], None
            if SETTINGS[setting]:
                folder = runs / name
                checkpoint = folder / "checkpoint_last.pt"
                command = pretrain_command(args, folder, setting, seed)
                chain.append(Step(runs / f"{name}-pretrain", command, read_pretrained, restarts=checkpoint))
                chain.append(Step(runs / f"{name}-loss", measure_command(args, checkpoint), read_measured))
            for task in args.tasks:
                command = finetune_command(args, checkpoint, task, seed)
                chain.append(Step(runs / f"{name}-{task}", command, read_finetuned))
            chains.append(chain)
    return chains


def collect(args):
    """What the finished steps found: ``[{"setting": ..., "seed": ..., "pretrain": {...}, "loss": {...}, TASK: {...}}]``."""
    found = []
    for seed in args.seeds:
        for setting in args.only:
            one = {"setting": setting, "rates": SETTINGS[setting], "seed": seed}
            for part in ("pretrain", "loss", *args.tasks):
                path = args.out / "runs" / f"{setting}-seed{seed}-{part}.json"
                if path.exists():
                    one[part] = json.loads(path.read_text())
            found.append(one)
    return found
