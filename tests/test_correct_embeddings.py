"""``maskplugins correct-embeddings``: the formula, the rates it reads, what it writes and what it refuses."""

import argparse
import copy
import shutil

import harness
import pytest
import torch
from reference.correct_embeddings import correct_by_loop
from tiny_roberta import build, make_dictionary, make_rows

from fairseq_maskplugins.checkpoints import read_checkpoint
from fairseq_maskplugins.cli import main
from fairseq_maskplugins.correct_embeddings.checkpoint import correct_checkpoint, shares_of
from fairseq_maskplugins.correct_embeddings.correct import ReplacementRates as Rates
from fairseq_maskplugins.correct_embeddings.correct import correct
from fairseq_maskplugins.errors import UsageError

EMBEDDING, HEAD = "encoder.sentence_encoder.embed_tokens.weight", "encoder.lm_head.weight"


@pytest.fixture(scope="module")
def checkpoint(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("correct")
    rates = "--corruption-rate 0.3 --prediction-rate 0.2 --random-token-prob 0.2 --leave-unmasked-prob 0.1".split()
    harness.train(corpus / "bin", folder, "--max-update", "2", *rates)
    return folder / "checkpoint_last.pt"


def run(*arguments):
    assert main(["correct-embeddings", *map(str, arguments)]) == 0


@pytest.mark.parametrize("shares", [Rates(0.15, 0.1, 0.1), Rates(0.4), Rates(1.0, 0.5, 0.25), Rates(0.0, 0.1, 0.1)])
def test_formula_against_a_loop(shares):
    weight = torch.randn(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = torch.tensor([True, False, False, True, True, True, True, True, False])
    expected = correct_by_loop(
        weight.tolist(), 8, shares.selected, shares.mask, shares.same, shares.random, rows.nonzero().flatten().tolist()
    )
    result = correct(weight, 8, shares, rows)
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=1e-12)
    assert torch.equal(result[~rows], weight[~rows])
    half = correct(weight.half(), 8, shares, rows)
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.double(), result, atol=2e-3, rtol=2e-3)


def test_command_corrects_with_the_rates_of_the_checkpoint(checkpoint, tmp_path, capsys):
    out = tmp_path / "out.pt"
    run(checkpoint, out, "--head", "untie")
    before, after = read_checkpoint(str(checkpoint)), read_checkpoint(str(out))
    old, new = before["model"][EMBEDDING], after["model"][EMBEDDING]
    mask = len(old) - 1
    rows = list(range(4, mask))
    expected = correct_by_loop(old.tolist(), mask, 0.3, 0.7, 0.1, 0.2, rows)
    torch.testing.assert_close(new, torch.tensor(expected), atol=1e-6, rtol=1e-5)
    assert torch.equal(new[:4], old[:4]) and torch.equal(new[mask], old[mask])
    # the head predicts as it did, and every other tensor is what it was
    assert torch.equal(after["model"][HEAD], old)
    same = [name for name in before["model"] if name != EMBEDDING]
    assert all(torch.equal(before["model"][name], after["model"][name]) for name in same)
    assert after["cfg"]["model"].untie_weights_roberta
    text = capsys.readouterr().out
    norms = [f"{tensor[4:mask].norm(dim=1).mean():.4f}" for tensor in (old, new)]
    assert "rates: 0.3 of the tokens corrupted, of these 0.7 <mask>, 0.2 random, 0.1 left the same" in text
    assert f"mean norm {norms[0]} -> {norms[1]}" in text and f"corrected {mask - 4} of {mask + 1} rows" in text


def test_options_override_and_choose_rows(checkpoint, tmp_path):
    old = harness.load_weights(checkpoint)[EMBEDDING]
    mask = len(old) - 1
    options = "--mask-prob 0.5 --random-token-prob 0 --leave-unmasked-prob 0 --mask-index 7 --include-specials".split()
    run(checkpoint, tmp_path / "a.pt", *options, "--include-mask", "--head", "follow")
    model = harness.load_weights(tmp_path / "a.pt")
    rows = [i for i in range(len(old)) if i != 1]
    expected = correct_by_loop(old.tolist(), 7, 0.5, 1.0, 0.0, 0.0, rows)
    torch.testing.assert_close(model[EMBEDDING], torch.tensor(expected), atol=1e-6, rtol=1e-5)
    assert torch.equal(model[HEAD], model[EMBEDDING]) and torch.equal(model[EMBEDDING][1], old[1])
    assert not torch.equal(model[EMBEDDING][mask], old[mask])


@pytest.mark.parametrize(
    "task, update, expected",
    [
        (dict(_name="masked_lm", mask_prob=0.15, random_token_prob=0.1, leave_unmasked_prob=0.1), 9, (0.15, 0.1, 0.1)),
        (dict(_name="decoupled_mlm", mask_prob=0.4), 9, (0.4, 0.0, 0.0)),
        (dict(mask_prob=0.4, corruption_rate=0.3), 9, (0.3, 0.0, 0.0)),
        (dict(mask_prob=0.6, mask_prob_final=0.2, max_update=10), 5, (0.4, 0.0, 0.0)),
        (dict(mask_prob=0.6, mask_prob_final=0.2), 5, (0.4, 0.0, 0.0)),
        (dict(_name="sentence_prediction"), 9, None),
    ],
)
def test_rates_of_tasks(task, update, expected):
    history = [dict(num_updates=update)]
    new = dict(cfg=dict(task=task, optimization=dict(max_update=10)), args=None, optimizer_history=history)
    old = dict(args=argparse.Namespace(**{"max_update": 10, **task}), optimizer_history=history)
    for state in (new, old):
        assert shares_of(state) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("arch", ["roberta_base", "roberta_prenorm", "droptoken_roberta_base"])
def test_models_load_the_result(arch, tied):
    """A tied model loads what was corrected with its tied head; an untied one keeps its predictions."""
    dictionary = make_dictionary()
    source = build(arch, dictionary, seed=2).eval()
    state = dict(model=copy.deepcopy(source.state_dict()), args=source.args)
    rows = torch.ones(len(dictionary), dtype=torch.bool)
    correct_checkpoint(state, Rates(0.4), len(dictionary) - 1, rows, head="follow" if tied else "untie")
    new = state["model"][EMBEDDING].clone()
    assert (
        not torch.equal(new, source.state_dict()[EMBEDDING]) and getattr(source.args, "untie_weights_roberta", False) is not tied
    )
    model = build(arch, dictionary, seed=3, untie_weights_roberta=not tied).eval()
    model.load_state_dict(state["model"])
    assert torch.equal(model.encoder.sentence_encoder.embed_tokens.weight, new)
    if not tied:  # the head is what it was
        features = source(make_rows(dictionary, (5, 7)), features_only=True)[0]
        assert torch.equal(model.encoder.lm_head(features), source.encoder.lm_head(features))


def test_heads_of_their_own_stay():
    dictionary = make_dictionary()
    model = build("roberta_base", dictionary, untie_weights_roberta=True)
    for head in ("untie", "follow"):
        state = dict(model=copy.deepcopy(model.state_dict()))
        before = state["model"][HEAD].clone()
        rows = torch.ones(len(dictionary), dtype=torch.bool)
        report = correct_checkpoint(state, Rates(0.4), 5, rows, head=head)
        assert torch.equal(state["model"][HEAD], before) and report.head == "untied before, unchanged"


def test_fine_tunes_from_the_result(checkpoint, corpus, tmp_path):
    run(checkpoint, tmp_path / "out.pt")
    options = ["--max-update", 1, "--lr", 0, "--finetune-from-model", tmp_path / "out.pt"]
    harness.train(corpus / "bin", tmp_path / "tuned", *options, base=harness.TINY + harness.LABELLED)
    tuned = harness.load_weights(tmp_path / "tuned" / "checkpoint_last.pt")
    assert torch.equal(tuned[EMBEDDING], harness.load_weights(tmp_path / "out.pt")[EMBEDDING])


def test_bad_input_is_refused_and_leaves_nothing(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "in.pt"
    shutil.copy(checkpoint, source)
    (tmp_path / "link.pt").symlink_to(source)
    (tmp_path / "folder").mkdir()
    run(source, tmp_path / "once.pt")
    damaged = tmp_path / "damaged.pt"
    damaged.write_bytes(source.read_bytes()[:1000])
    state = read_checkpoint(str(source))
    for name, change in (
        ("tuned.pt", lambda s: s["cfg"].update(task={"_name": "sentence_prediction"})),
        ("odd.pt", lambda s: s["cfg"]["task"].update(mask_prob=7.0)),
        ("elsewhere.pt", lambda s: s["cfg"]["task"].update(data=str(tmp_path))),
        ("stripped.pt", lambda s: s.update(optimizer_history=[])),
        ("later.pt", lambda s: (s["cfg"]["task"].update(mask_prob_final=0.2, max_update=9), s.pop("optimizer_history"))),
        ("mae.pt", lambda s: s["model"].update({"mae_decoder.mask": torch.zeros(2)})),
        ("tied.pt", lambda s: s["model"].pop(HEAD)),
        ("none.pt", lambda s: s["model"].pop(EMBEDDING)),
        ("int8.pt", lambda s: s["model"].update({EMBEDDING: s["model"][EMBEDDING].mul(99).to(torch.int8)})),
    ):
        changed = copy.deepcopy(state)
        change(changed)
        torch.save(changed, tmp_path / name)
    (tmp_path / "dict.txt").write_text("a 1\n")
    (tmp_path / "latin.txt").write_bytes(b"\xe9 1\n")
    files = sorted(tmp_path.iterdir())
    out = tmp_path / "out.pt"
    for arguments, text in (
        ((source, source), f"OUT {source}: is one of the input files"),
        ((source, tmp_path / "link.pt"), "link.pt: is one of the input files"),
        ((source, tmp_path / "folder"), "OUT must name a file, got '.*folder'"),
        ((source, tmp_path / "nowhere" / "out.pt"), "nowhere does not exist"),
        (("once.pt", out), "^fairseq_maskplugins: once.pt: its embeddings are corrected already"),
        (("missing.pt", out), "missing.pt: no such checkpoint"),
        ((damaged, out), "damaged.pt: can't read this checkpoint"),
        (("tuned.pt", out), "tuned.pt: its task, sentence_prediction, records no masking rates: give --mask-prob"),
        (("odd.pt", out), "odd.pt: the rates it records can't be read .*: give --mask-prob, --random-token-prob and"),
        (("later.pt", out), "later.pt: it does not say after how many updates its rates were to be read: give --mask-prob"),
        (("elsewhere.pt", out), "dict.txt: has 6 entries .*elsewhere.pt has .*: give --dict or --mask-index"),
        (("mae.pt", out), "mae.pt: was trained as MAE"),
        (("tied.pt", out, "--head", "untie"), "tied.pt: has no output projection of its own to untie: --head follow"),
        (("none.pt", out), "none.pt: must hold one embed_tokens.weight, found none"),
        (("int8.pt", out), f"int8.pt: {EMBEDDING} must hold floating-point numbers, got int8: "),
        ((source, out, "--mask-prob", "1.5"), r"^fairseq_maskplugins: --mask-prob must lie in \[0, 1\], got 1.5"),
        ((source, out, "--random-token-prob", "0.95"), "^fairseq_maskplugins: --random.* at most 1, got 0.95"),
        ((source, out, "--mask-index", "5000"), "^fairseq_maskplugins: --mask-index must be a row of the embedding, 0"),
        ((source, out, "--mask-index", "1"), "^fairseq_maskplugins: --mask-index must be another row than padding's, got 1"),
        ((source, out, "--pad-index", "-1"), "^fairseq_maskplugins: --pad-index must be a row of the embedding, 0"),
        ((source, out, "--dict", "dict.txt"), "^fairseq_maskplugins: dict.txt: has 6 .* rows: it is not the model's"),
        ((source, out, "--dict", "latin.txt"), "^fairseq_maskplugins: latin.txt: can't read the dictionary"),
    ):
        with pytest.raises(UsageError, match=text) as error:
            run(*arguments)
        assert "\n" not in str(error.value)
    assert sorted(tmp_path.iterdir()) == files
    run("tuned.pt", out, "--mask-prob", "0.3")
    run("odd.pt", out, *"--mask-prob 0.3 --random-token-prob 0 --leave-unmasked-prob 0".split())
    run("tied.pt", out, "--head", "follow")
    run("stripped.pt", out)
