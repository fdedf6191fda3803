"""``examples/config``: every file loads, the small ones train, and Hydra trains what the command line trains."""

import sys

import harness
import pytest
import yaml

CONFIGS = harness.ROOT / "examples" / "config"
FILES = sorted(CONFIGS.glob("*.yaml"))
SMALL = [path for path in FILES if path.stem.endswith("_cpu")]
FAST = (
    "optimization.max_update=2 dataset.batch_size=8 dataset.num_workers=0 "
    "common.log_interval=1 common.log_format=json common.reset_logging=true"
).split()


def hydra(name, corpus, folder, *overrides, check=True, flags=()):
    """``fairseq-hydra-train`` in a folder of its own, with what the file leaves open."""
    text = (CONFIGS / f"{name}.yaml").read_text()
    command = [sys.executable, "-m", "fairseq_cli.hydra_train", *flags, "--config-dir", CONFIGS, "--config-name", name]
    command += [f"common.user_dir={harness.USER_DIR}", f"task.data={corpus / 'bin'}"]
    if "sentencepiece_model: ???" in text:
        command.append(f"bpe.sentencepiece_model={corpus / 'sp.model'}")
    if "pmi_vocab: ???" in text:
        command.append(f"task.pmi_vocab={corpus / 'phrases.txt'}")
    folder.mkdir(exist_ok=True)
    return harness.Log(harness.run([*command, *FAST, *overrides], cwd=folder, check=check))


@pytest.mark.once
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_key_is_an_option(path):
    """Also those of ``model``, which fairseq does not check."""
    from dataclasses import fields

    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    content = yaml.safe_load(path.read_text())
    labelled = content["task"]["_name"] == "sentence_prediction"
    base = harness.TINY + (harness.LABELLED if labelled else harness.MLM)
    model = vars(harness.parse("data", "--arch", content["model"]["_name"], base=base).model)
    for group, keys in content.items():
        if group == "hydra":
            continue
        name = keys.get("_name")
        if group == "model":
            known = set(model)
        elif group == "task":
            known = {f.name for f in fields(TASK_DATACLASS_REGISTRY[name])}
        elif group in REGISTRIES:
            known = {f.name for f in fields(REGISTRIES[group]["dataclass_registry"][name])}
        else:
            known = {f.name for f in fields(FairseqConfig.__dataclass_fields__[group].type)}
        assert set(keys) - {"_name"} <= known, group
    head = path.read_text().split("\n\nhydra:")[0]
    assert f"--config-name {path.stem} " in head and "# Before: " in head and "# Override: " in head


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_small_ones_train_two_updates(path, corpus, tmp_path):
    log = hydra(path.stem, corpus, tmp_path / "run")
    assert sorted(log.losses()) == [1, 2]
    assert (tmp_path / "run" / "checkpoints" / "checkpoint_last.pt").is_file()


def test_same_losses_as_the_command_line(corpus, tmp_path):
    log = hydra("span_cpu", corpus, tmp_path / "hydra", "+task.random_token_prob=0.1")
    options = (
        "--arch roberta_base --encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 "
        "--encoder-attention-heads 4 --max-positions 64 --dropout 0.1 --attention-dropout 0.1 --seed 1 --cpu "
        "--task decoupled_mlm --criterion decoupled_mlm --tokens-per-sample 64 --batch-size 8 --masker span "
        "--mask-prob 0.4 --random-token-prob 0.1 --optimizer adam --adam-betas (0.9,0.98) --adam-eps 1e-6 "
        "--weight-decay 0.01 --lr 0.001 --lr-scheduler polynomial_decay --warmup-updates 60 --total-num-update 2 "
        "--max-update 2 --clip-norm 1.0 --num-workers 0 --log-format json --log-interval 1 --bpe sentencepiece"
    ).split() + ["--sentencepiece-model", corpus / "sp.model"]
    other = harness.train(corpus / "bin", tmp_path / "line", *options, base=[])
    assert log.losses() == other.losses() and len(log.losses()) == 2
    harness.assert_same_weights(*(tmp_path / at / "checkpoint_last.pt" for at in ("hydra/checkpoints", "line")))


@pytest.mark.parametrize("override", ["+task.corruption_rat=0.3", "+optimizer.adam_epss=1"])
def test_misspelt_keys_are_refused(override, corpus, tmp_path):
    log = hydra("decoupled_mlm_cpu", corpus, tmp_path / "run", override, check=False)
    assert log.returncode != 0 and not log.train
    assert override.split(".")[1].split("=")[0] in log.text


def test_a_bad_value_ends_in_our_line(corpus, tmp_path):
    log = hydra("decoupled_mlm_cpu", corpus, tmp_path / "run", "task.corruption_rate=2", check=False)
    assert log.returncode == 1 and "Traceback" not in log.text, log.text[-3000:]
    assert "fairseq_maskplugins: --corruption-rate must lie in (0, 1], got 2" in log.text.splitlines()


@pytest.mark.parametrize(
    "name, left_open, said",
    [
        ("pmi_cpu", "bpe.sentencepiece_model", "--bpe sentencepiece needs --sentencepiece-model"),
        # Hydra 1.3 takes what is left open for none, Hydra 1.0 does not
        ("pmi_cpu", "task.pmi_vocab", ("--masker pmi needs --pmi-vocab", "task.pmi_vocab must have a value, and is ???")),
        ("decoupled_mlm_cpu", "task.data", "the data directory is missing: give one, or several joined by ':'"),
    ],
)
def test_what_a_file_leaves_open_is_named(name, left_open, said, corpus, tmp_path):
    log = hydra(name, corpus, tmp_path / "run", f"{left_open}='???'", check=False)
    assert log.returncode == 1 and "Traceback" not in log.text, log.text[-3000:]
    lines = [line[len("fairseq_maskplugins: ") :] for line in log.text.splitlines() if line.startswith("fairseq_maskplugins: ")]
    assert len(lines) == 1 and lines[0].startswith(said), log.text[-3000:]


def test_several_rates_in_one_command(corpus, tmp_path):
    log = hydra("decoupled_mlm_cpu", corpus, tmp_path / "run", "task.corruption_rate=0.2,0.6", flags=["-m"])
    assert len(log.train) == 4, log.text[-2000:]
    folders = [tmp_path / "run" / "multirun" / "decoupled_mlm_cpu" / n for n in "01"]
    assert all((folder / "checkpoints" / "checkpoint_last.pt").is_file() for folder in folders)
    rates = [step["corruption_rate"] for step in log.train]
    assert abs(rates[0] - 0.2) < 0.05 and abs(rates[2] - 0.6) < 0.05
