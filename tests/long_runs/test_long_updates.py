"""5,000 updates of every method at toy size: each run ends, improves, warns little and holds no more at its end."""

import json
import re
import sys

import harness
import pytest
from cases import CASES, _case
from watch import can_watch, settled, watch

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not can_watch(), reason="needs Linux' /proc")]
UPDATES, STAGE = 5000, 1000
TWICE = ("stock_criterion", "span_token")  # another case trains the same code
LEARNS_BY_HEART = ("droptoken_finetune",)  # a few hundred labelled lines: the loss of others rises in the end
SLOW = ("child_sgd",)  # fairseq's own sgd is as far after as many updates
# with MAE's encoder, and as many tokens hidden, it takes half of the updates to leave the plateau of the words' frequencies
INSTEAD = {"mapnet_shared": ["--arch", "roberta_base"]}
METHODS = [case for case in CASES if case.name not in TWICE] + [
    _case(
        "child_d",
        "--optimizer child_tuning_adam --child-tuning-mode D --child-tuning-mask {begun}/mask "
        "--finetune-from-model {begun}/checkpoint_last.pt",
        "optimizer",
        "child_tuning_adam",
        "ChildTuningAdam",
    )
]
# no checkpoints or validation at the ends of the many small epochs; a learning rate at which a model of this size leaves
# the plateau of the words' frequencies; a case's own options override these
LEARNING = "--lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 100 --batch-size 16".split()
LEARNING += "--dropout 0 --attention-dropout 0".split()
LONG = (
    f"--max-update {UPDATES} --log-interval 100 --no-epoch-checkpoints --no-last-checkpoints --save-interval 100000 "
    f"--validate-interval 100000 --validate-interval-updates {STAGE} --save-interval-updates {UPDATES}"
).split() + LEARNING


@pytest.fixture(scope="module")
def begun(corpus, tmp_path_factory):
    """Folder of a model of 1,000 updates, and a mask for ChildTuning-D selected from its Fisher information."""
    folder = tmp_path_factory.mktemp("begun")
    harness.train(corpus / "bin", folder, "--max-update", STAGE, "--no-epoch-checkpoints", *LEARNING)
    command = [sys.executable, "-m", "fairseq_maskplugins.cli", "fisher", corpus / "bin", "--user-dir"]
    command += [harness.USER_DIR, *harness.TINY, *harness.MLM, "--restore-file", folder / "checkpoint_last.pt"]
    command += ["--max-examples", 50, "--mask", folder / "mask", "--reserve-p", 0.3]
    harness.run(command, check=True, cwd=harness.ROOT)
    return folder


def numbers(text, marker):
    return [json.loads(line.split(marker, 1)[1]) for line in text.splitlines() if marker in line]


@pytest.mark.parametrize("case", METHODS, ids=lambda case: case.name)
def test_5000_updates(case, corpus, begun, tmp_path, capsys):
    options = [option.format(corpus=corpus, begun=begun) for option in case.options] + INSTEAD.get(case.name, [])
    command = harness.train_command(corpus / "bin", tmp_path / "save", base=[*case.base, *LONG, *options])

    def stage(line):
        found = re.search(r'\| train_inner \| .*"num_updates": "(\d+)"', line)
        return int(found.group(1)) // STAGE if found else None

    samples = watch(command, str(tmp_path / "log.txt"), stage)
    text = (tmp_path / "log.txt").read_text()
    train, valid = numbers(text, "| train_inner | "), numbers(text, "| valid | ")
    assert int(train[-1]["num_updates"]) == UPDATES and len(train) == UPDATES // 100
    losses = [float(step["loss"]) for step in train]
    held = [float(step["valid_loss"]) for step in valid]
    assert all(0 <= loss < 50 for loss in losses + held)  # NaN fails too
    first, last = settled(samples[1]), settled(samples[max(s for s in samples if s < UPDATES // STAGE)])
    with capsys.disabled():
        print(
            f"\n| {case.name} | {losses[0]:.2f} | {losses[-1]:.2f} | {held[0]:.2f} | {held[-1]:.2f} | "
            f"{float(train[-1]['wall']):.0f} | {first.rss:.0f} | {last.rss:.0f} | {first.files:.0f} | "
            f"{last.files:.0f} | {last.processes:.0f} |"
        )
    assert losses[-1] < (1.0 if case.name in SLOW else 0.8) * losses[0]
    if case.name not in LEARNS_BY_HEART:
        assert held[-1] < held[0] + 0.05  # after 1,000 updates and after all
    assert last.rss <= 1.1 * first.rss
    # a file or two kept of each of the hundreds of epochs would be many times as many; workers come and go with epochs
    assert last.processes <= first.processes and last.files <= 1.5 * first.files
    warnings = [line for line in text.splitlines() if "WARN" in line or "Warning" in line]
    assert len(warnings) <= 20, warnings[:5]
    assert len(text) < 1_000_000 and "Traceback" not in text
