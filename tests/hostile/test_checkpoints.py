"""Checkpoints that hold code, are damaged, or claim more than they hold, at every command that reads one."""

import collections
import os
import shutil

import files
import harness
import pytest
import torch
from guarded import check_line, command, guarded

from fairseq_maskplugins.checkpoints import is_harmless

EMBEDDING = "encoder.sentence_encoder.embed_tokens.weight"


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """Folder of a tiny run whose checkpoint every command can read, with MAP-Net's proposer."""
    folder = tmp_path_factory.mktemp("run")
    mapnet = ["--criterion", "mapnet", "--mapnet-embed-dim", 16, "--mapnet-warmup-updates", 0]
    words = ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    harness.train(corpus / "bin", folder, "--max-update", 1, *mapnet, *words)
    return folder


@pytest.fixture(scope="module")
def valid(run):
    return (run / "checkpoint_last.pt").read_bytes()


@pytest.fixture(scope="module")
def state(run):
    return torch.load(run / "checkpoint_last.pt", map_location="cpu")


COMMANDS = {
    "correct-embeddings": lambda path, corpus, out: ["correct-embeddings", path, out / "out.pt"],
    "export-hf": lambda path, corpus, out: ["export-hf", path, out / "hf"],
    "fill-mask": lambda path, corpus, out: ["fill-mask", path, corpus / "bin", "a <mask> day"],
    "variance": lambda path, corpus, out: (
        ["variance", path, corpus / "bin", "--cpu", "--rows", 4, "--groups", 2, "--masks", 2]
    ),
    "show-masks": lambda path, corpus, out: (
        ["show-masks", corpus / "bin", "--checkpoint", path, "--rows", 1, "--measure", 4]
        + ["--bpe", "sentencepiece", "--sentencepiece-model", corpus / "sp.model"]
    ),
    "fisher": lambda path, corpus, out: (
        ["fisher", corpus / "bin", "--mask", out / "mask", "--restore-file", path, "--max-examples", 2]
        + [*harness.TINY, *harness.MLM, "--criterion", "mapnet", "--mapnet-embed-dim", 16]
    ),
}


def replaced(state, **parts):
    return files.saved({**state, **parts})


def with_options(state, change):
    """The options are a plain dictionary of groups; the model's a namespace."""
    import copy

    cfg = copy.deepcopy(state["cfg"])
    change(cfg)
    return replaced(state, cfg=cfg)


def set_option(name, value, group="model"):
    def change(cfg):
        if isinstance(cfg[group], dict):
            cfg[group][name] = value
        else:
            setattr(cfg[group], name, value)

    return change


def set_options(**options):
    def change(cfg):
        for name, value in options.items():
            set_option(name, value)(cfg)

    return change


def with_tensor(state, name, tensor):
    return replaced(state, model=collections.OrderedDict(state["model"], **{name: tensor}))


def poisoned(state, value):
    tensor = state["model"][EMBEDDING].clone()
    tensor[5, 3] = value
    return with_tensor(state, EMBEDDING, tensor)


# what the file is, and what is said of it, by every command
CODE = {
    "code": (lambda v, s, mark: replaced(s, extra_state=files.Payload(mark)), "posix.mkdir"),
    "code as the whole file": (lambda v, s, mark: files.saved(files.Payload(mark)), "posix.mkdir"),
    "code in an old file": (
        lambda v, s, mark: files.saved({**s, "x": files.Payload(mark)}, _use_new_zipfile_serialization=False),
        "posix.mkdir",
    ),
    "code in a namespace": (
        lambda v, s, mark: with_options(s, set_option("dropout", files.Payload(mark))),
        "posix.mkdir",
    ),
    "eval": (
        lambda v, s, mark: files.with_pickle(
            v, files.global_pickle("__builtin__", "eval", f"__import__('os').mkdir({str(mark)!r})")
        ),
        "eval",
    ),
    "a method by a dotted name": (
        lambda v, s, mark: files.with_pickle(v, files.stack_global_pickle("argparse", "_os.mkdir", str(mark))),
        "refused",
    ),
    "a class that is changed": (lambda v, s, mark: files.with_pickle(v, files.fill_class_pickle()), "refused"),
    "a bare pickle": (lambda v, s, mark: files.pickled(files.Payload(mark)), "model.pt"),
    "a script": (lambda v, s, mark: files.script(), "TorchScript"),
    "code in an option": (
        lambda v, s, mark: with_options(
            s, set_option("encoder_xformers_att_config", f"__import__('os').mkdir({str(mark)!r})")
        ),
        "encoder_xformers_att_config could run code",
    ),
}
LARGE = {
    "a packed record": (lambda v, s, mark: files.bomb("archive/data/0"), "packed"),
    "a packed pickle": (lambda v, s, mark: files.bomb("archive/data.pkl"), "packed"),
    "one content under many names": (lambda v, s, mark: files.overlapping(v), "claims more than the file holds"),
    "a tensor longer than its data": (lambda v, s, mark: files.claims(v), ""),
    "a tensor of 10^12 entries": (
        lambda v, s, mark: with_tensor(s, EMBEDDING, torch.zeros(1).expand(10**6, 10**6)),
        "",
    ),
    "parts that double": (lambda v, s, mark: replaced(s, extra_state={"x": files.laughs(60)}), "parts"),
    "options that double": (
        lambda v, s, mark: with_options(s, lambda cfg: cfg.update(task=files.laughs(60))),
        "its options",
    ),
    "90,000 options": (
        lambda v, s, mark: with_options(s, lambda cfg: cfg.update(x=list(range(90_000)))),
        "its options",
    ),
    "a part that holds itself": (lambda v, s, mark: replaced(s, extra_state=files.endless()), "parts"),
    "100,000 levels": (lambda v, s, mark: files.with_pickle(v, files.deep_pickle(100_000)), "levels"),
}
DAMAGED = {
    "empty": (lambda v, s, mark: b"", "model.pt"),
    "cut in half": (lambda v, s, mark: v[: len(v) // 2], "damaged"),
    "cut by a byte": (lambda v, s, mark: v[:-1], "damaged"),
    "text": (lambda v, s, mark: b"no checkpoint\n" * 1000, "model.pt"),
    "bytes before it": (lambda v, s, mark: b"PK\x03\x04" + v, "damaged"),
    "a tar file": (lambda v, s, mark: files.tar_of(v), "tar"),
    "without its pickle": (
        lambda v, s, mark: files.repack(v, lambda n, c: None if n.endswith("data.pkl") else c),
        "model.pt",
    ),
    "no dictionary": (lambda v, s, mark: files.saved([1, 2]), "checkpoint"),
    "a model without tensors": (lambda v, s, mark: replaced(s, model={"a": 1}), "no fairseq checkpoint"),
    "a model with other keys": (lambda v, s, mark: replaced(s, model={1: torch.zeros(1)}), "no fairseq checkpoint"),
    "a sparse tensor": (lambda v, s, mark: with_tensor(s, EMBEDDING, torch.eye(3).to_sparse()), "model.pt"),
    "NaN weights": (lambda v, s, mark: poisoned(s, float("nan")), EMBEDDING),
    "infinite weights": (lambda v, s, mark: poisoned(s, float("inf")), EMBEDDING),
}
# what the commands do without
STRIPPED = {
    "no history": lambda v, s, mark: replaced(s, optimizer_history=[]),
    "a history of another kind": lambda v, s, mark: replaced(s, optimizer_history="none"),
}
# what does not concern every command
SETTINGS = {
    "wrong shape": lambda v, s, mark: with_tensor(s, EMBEDDING, torch.zeros(7, 5)),
    "no dimension": lambda v, s, mark: with_tensor(s, EMBEDDING, torch.zeros(())),
    "too many layers": lambda v, s, mark: with_options(s, set_option("encoder_layers", 10**9)),
    "too wide": lambda v, s, mark: with_options(s, set_option("encoder_embed_dim", 1 << 20)),
    "too many positions": lambda v, s, mark: with_options(s, set_option("max_positions", 10**9)),
    "a large table of positions": lambda v, s, mark: with_options(
        s, set_options(encoder_learned_pos=False, max_positions=3 * 10**7, max_source_positions=3 * 10**7)
    ),
    "a billion layers of one number": lambda v, s, mark: with_options(
        s,
        set_options(encoder_layers=10**9, encoder_embed_dim=1, encoder_ffn_embed_dim=1, encoder_attention_heads=1),
    ),
    "a text for a number": lambda v, s, mark: with_options(s, set_option("encoder_layers", "many")),
    "no options": lambda v, s, mark: replaced(s, cfg=None),
    "options of another kind": lambda v, s, mark: replaced(s, cfg=[1, 2]),
    "another task": lambda v, s, mark: with_options(s, set_option("_name", "translation", "task")),
    "no such architecture": lambda v, s, mark: with_options(s, set_option("_name", "no_such_arch")),
    "a tensor too much": lambda v, s, mark: with_tensor(s, "\x1b[31mred\n" * 500, torch.zeros(1)),
}
ALL = {**CODE, **LARGE, **DAMAGED}


def try_all(write, corpus, tmp_path, names=COMMANDS):
    """What every command makes of a file, as outcomes by command; nothing may be left behind."""
    path, mark = tmp_path / "model.pt", tmp_path / "mark"
    path.write_bytes(write(mark))
    outcomes = {}
    for name in names:
        before = sorted(os.listdir(tmp_path))
        outcomes[name] = guarded(command, *COMMANDS[name](path, corpus, tmp_path))
        assert not mark.exists(), f"{name} ran the code"
        if outcomes[name].kind != "done":
            assert sorted(os.listdir(tmp_path)) == before
    return outcomes


def test_the_valid_file_is_read(run, corpus, tmp_path):
    """Without this the refusals below would say nothing."""
    shutil.copy(run / "checkpoint_last.pt", tmp_path / "model.pt")
    for name in COMMANDS:
        outcome = guarded(command, *COMMANDS[name](tmp_path / "model.pt", corpus, tmp_path))
        assert outcome.kind == "done", (name, outcome)


def test_the_payload_is_real(tmp_path):
    import pickle

    for content in (
        files.pickled(files.Payload(tmp_path / "a")),
        files.global_pickle("__builtin__", "eval", f"__import__('os').mkdir({str(tmp_path / 'b')!r})"),
        files.stack_global_pickle("argparse", "_os.mkdir", str(tmp_path / "c")),
    ):
        pickle.loads(content)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


# the two ways in which commands read a checkpoint: as it is, and as fairseq brings it up to date
TWO = ("correct-embeddings", "variance")
BUILDING = ("export-hf", "fill-mask", "variance")


def check_refused(kind, valid, state, corpus, tmp_path, names):
    make, said = ALL[kind]
    for name, outcome in try_all(lambda mark: make(valid, state, mark), corpus, tmp_path, names).items():
        check_line(outcome, "model.pt", said)
        assert outcome.megabytes < 200, (name, outcome)


@pytest.mark.parametrize("kind", CODE)
def test_code_is_refused_by_every_command(kind, valid, state, corpus, tmp_path):
    check_refused(kind, valid, state, corpus, tmp_path, COMMANDS)


@pytest.mark.parametrize("kind", [*LARGE, *DAMAGED])
def test_others_are_refused(kind, valid, state, corpus, tmp_path):
    check_refused(kind, valid, state, corpus, tmp_path, TWO)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*LARGE, *DAMAGED])
def test_others_are_refused_by_every_command(kind, valid, state, corpus, tmp_path):
    check_refused(kind, valid, state, corpus, tmp_path, COMMANDS)


def check_settings(kind, valid, state, corpus, tmp_path, names):
    for name, outcome in try_all(lambda mark: SETTINGS[kind](valid, state, mark), corpus, tmp_path, names).items():
        assert outcome.kind in ("done", "refused"), (name, outcome)
        assert outcome.megabytes < 200, (name, outcome)
        if outcome.kind == "refused":
            check_line(outcome)


@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_that_do_not_fit(kind, valid, state, corpus, tmp_path):
    check_settings(kind, valid, state, corpus, tmp_path, BUILDING)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_that_do_not_fit_at_every_command(kind, valid, state, corpus, tmp_path):
    check_settings(kind, valid, state, corpus, tmp_path, COMMANDS)


@pytest.mark.parametrize("kind", STRIPPED)
def test_what_commands_do_without(kind, valid, state, corpus, tmp_path):
    for name, outcome in try_all(lambda mark: STRIPPED[kind](valid, state, mark), corpus, tmp_path, TWO).items():
        assert outcome.kind == "done", (name, outcome)


@pytest.mark.parametrize("command_name", TWO)
def test_mutations(command_name, valid, corpus, tmp_path):
    """Bits flipped, bytes cut out or doubled: refused, or harmless."""
    check_mutations(valid, corpus, tmp_path, command_name, 8)


@pytest.mark.slow
@pytest.mark.parametrize("command_name", COMMANDS)
def test_more_mutations(command_name, valid, corpus, tmp_path):
    check_mutations(valid, corpus, tmp_path, command_name, 100, seed=1)


def check_mutations(valid, corpus, tmp_path, name, count, seed=0):
    for content in files.mutations(valid, count, seed):
        outcome = try_all(lambda mark, content=content: content, corpus, tmp_path, [name])[name]
        assert outcome.kind in ("done", "refused"), outcome
        if outcome.kind == "refused":
            check_line(outcome)
        for left in ("out.pt", "mask"):
            (tmp_path / left).unlink(missing_ok=True)
        shutil.rmtree(tmp_path / "hf", ignore_errors=True)


@pytest.mark.parametrize("kind", ["code", "code in an option", "a packed record", "cut in half"])
def test_fairseq_s_own_loading(kind, valid, state, data_bin, tmp_path):
    """``fairseq-train --restore-file`` and ``fairseq-validate`` go through the same checks."""
    path, mark = tmp_path / "model.pt", tmp_path / "mark"
    path.write_bytes(ALL[kind][0](valid, state, mark))
    log = harness.train(data_bin, tmp_path / "run", "--restore-file", path, "--max-update", 1, check=False)
    assert log.returncode == 1 and not mark.exists()
    assert log.text.strip().splitlines()[-1].startswith(f"fairseq_maskplugins: {path}: ")


def test_what_checkpoints_really_hold(tmp_path):
    """numpy scalars, omegaconf nodes, old files and half precision load, in every torch."""
    import numpy as np
    from omegaconf import OmegaConf

    from fairseq_maskplugins.checkpoints import read_checkpoint

    state = {
        "cfg": OmegaConf.create({"task": {"_name": "masked_lm", "list": [1, 2.5, None, True, "${task._name}"]}}),
        "args": files.namespace(lr=[0.1], data="x", adam_betas="(0.9, 0.98)", conv_feature_layers="[(512, 3, 2)] * 4"),
        "extra_state": collections.OrderedDict(loss=np.float64(1.5), n=np.int64(3), on=np.bool_(True), b=b"\xff\x00"),
        "model": {"w": torch.nn.Parameter(torch.arange(4.0)), "h": torch.ones(3, 2).half().t(), "n": torch.tensor([1])},
        "more": {
            "set": {1, 2},
            "dtype": torch.float16,
            "e": torch.zeros(0),
        },
    }
    for old in (False, True):
        path = tmp_path / "model.pt"
        path.write_bytes(files.saved(state, _use_new_zipfile_serialization=not old))
        with open(path, "rb") as file:
            found = read_checkpoint(file)
        assert found["cfg"].task.list[4] == "masked_lm" and found["args"] == state["args"]
        assert dict(found["extra_state"]) == dict(state["extra_state"]) and found["more"]["set"] == {1, 2}
        assert torch.equal(found["model"]["w"], state["model"]["w"]) and found["model"]["h"].dtype == torch.float16


def test_classes_of_users_can_be_allowed(tmp_path, monkeypatch):
    from fairseq_maskplugins.checkpoints import allow_in_checkpoints, read_checkpoint

    (tmp_path / "model.pt").write_bytes(files.saved({"model": {}, "mine": Mine(3)}))

    def load():
        with open(tmp_path / "model.pt", "rb") as file:
            return read_checkpoint(file)["mine"].value

    assert guarded(load).kind == "crashed"

    def allow_and_load():
        allow_in_checkpoints(Mine)
        return load()

    assert guarded(allow_and_load)[:2] == ("done", "3")


@pytest.mark.parametrize(
    "text, harmless",
    [
        ("(0.9, 0.98)", True),
        ("[(512, 10, 5)] + [(512, 3, 2)] * 4", True),
        ("4000,20000", True),
        ("True", True),
        ("{'name': 'scaled_dot_product'}", True),
        ("not python at all", True),
        ("exit()", False),
        ("(lambda: 1)()", False),
        ("[x for x in ()]", False),
        ("().__class__", False),
        ("f'{exit()}'", False),
        ("[0] * 10**12", False),
        ("[0] * 1000000000", False),
        ("[[0] * 5000] * 5000", False),
        ("${task.data}", False),
        ("'\\' + x", False),
        (b"exit()", False),
        ("(" * 100_000, False),
        ("-" * 900 + "1", None),
    ],
)
def test_options_that_fairseq_evaluates(text, harmless):
    outcome = guarded(is_harmless, text)
    assert outcome.kind == "done" and (harmless is None or outcome.text == str(harmless))


class Mine:
    def __init__(self, value):
        self.value = value
