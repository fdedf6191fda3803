"""Fisher values against a loop of single-example backward passes, the selection, and ``maskplugins fisher``."""

import sys

import harness
import numpy as np
import pytest
import torch
from forked import Forked

from fairseq_maskplugins.child_tuning import maskfile, per_example
from fairseq_maskplugins.child_tuning.fisher import Fisher, covered_names
from fairseq_maskplugins.child_tuning.select import count_kept, select_top
from fairseq_maskplugins.child_tuning.show import describe
from fairseq_maskplugins.errors import UsageError

FINETUNE = harness.TINY + harness.LABELLED


@pytest.fixture(scope="module")
def checkpoint(data_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    harness.train(data_bin, folder, "--max-update", 2, "--no-epoch-checkpoints")
    return folder / "checkpoint_last.pt"


def fisher_command(data, *options, base=FINETUNE):
    command = [sys.executable, "-m", "fairseq_maskplugins.cli", "fisher", str(data)]
    return command + ["--user-dir", str(harness.USER_DIR), *base, *map(str, options)]


def run_fisher(data, *options, **kwargs):
    return harness.run(fisher_command(data, *options, **kwargs), cwd=harness.ROOT)


class Classifier(torch.nn.Module):
    """Layers of every kind: embeddings, norms, layers that see ``[T, B, C]``, tied and unused weights."""

    def __init__(self, tied=False):
        super().__init__()
        torch.manual_seed(1)
        self.embed = torch.nn.Embedding(11, 6, padding_idx=1)
        self.norm = torch.nn.LayerNorm(6)
        self.inner = torch.nn.Linear(6, 5, bias=False)
        self.twice = torch.nn.Linear(5, 5)
        self.free = torch.nn.Parameter(torch.randn(5))
        self.head = torch.nn.Linear(5, 3)
        self.back = torch.nn.Linear(5, 6)
        self.unused = torch.nn.Linear(2, 2)
        self.tied = tied

    def forward(self, tokens):
        keep = tokens.ne(1).float()[:, :, None]
        x = torch.tanh(self.inner(self.norm(self.embed(tokens)).transpose(0, 1))).transpose(0, 1)
        x = self.twice(torch.tanh(self.twice(x))) * self.free
        pooled = (x * keep).sum(1) / keep.sum(1)
        out = self.head(pooled)
        return torch.cat([out, torch.nn.functional.linear(self.back(pooled), self.embed.weight)], 1) if self.tied else out


def toy(tied=False, count=12):
    generator = torch.Generator().manual_seed(4)
    lengths = [3, 5, 2, 4] * (count // 4)
    rows = [torch.randint(2, 11, (n,), generator=generator) for n in lengths]
    labels = torch.randint(0, 3, (count,), generator=generator)
    model = Classifier(tied)

    def batch(indices):
        width = max(lengths[i] for i in indices)
        tokens = torch.stack([torch.cat([rows[i], rows[i].new_ones(width - lengths[i])]) for i in indices])
        return tokens, labels[list(indices)]

    def loss_of(sample):
        return torch.nn.functional.cross_entropy(model(sample[0]), sample[1], reduction="sum")

    return model, batch, loss_of


def reference_fisher(model, batch, loss_of, count):
    """The definition: one backward pass for each example, squares averaged."""
    total = {}
    for index in range(count):
        model.zero_grad(set_to_none=True)
        loss_of(batch([index])).backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                total[name] = total.get(name, 0) + p.grad.double() ** 2 / count
    model.zero_grad(set_to_none=True)
    return total


@pytest.mark.parametrize("tied, at_once", [(False, 1 << 22), (True, 1 << 22), (False, 0)])
def test_vectorised_values_are_those_of_single_examples(tied, at_once, monkeypatch):
    """In layers of full size the gradients of all examples don't fit at once, and are made one by one."""
    monkeypatch.setattr(per_example, "AT_ONCE", at_once)
    model, batch, loss_of = toy(tied)
    expected = reference_fisher(model, batch, loss_of, 12)
    fisher = Fisher(model, dict(model.named_parameters()))
    for start in range(0, 12, 4):
        indices = list(range(start, start + 4))
        fisher.add(loss_of, batch(indices), [lambda i=i: batch([i]) for i in indices])
    found = fisher.result()
    assert found.keys() == expected.keys() and "unused.weight" not in found
    for name in expected:
        torch.testing.assert_close(found[name].double(), expected[name], rtol=1e-3, atol=1e-9)
    # a layer called twice and a free parameter can't be vectorised; a tied weight can't either
    loop = {"twice.weight", "twice.bias", "free"} | ({"embed.weight"} if tied else set())
    assert set(fisher.loop) == loop
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_a_mean_over_the_batch_is_noticed():
    """A loss that is not a sum over examples disagrees with single examples: nothing is vectorised."""
    model, batch, loss_of = toy()
    fisher = Fisher(model, dict(model.named_parameters()))
    mean = lambda sample: loss_of(sample) / len(sample[1])  # noqa: E731
    fisher.add(mean, batch([0, 1, 2, 3]), [lambda i=i: batch([i]) for i in range(4)])
    assert not fisher.layouts and len(fisher.loop) == len(fisher.result())


def reference_top(values, reserve_p):
    flat = np.concatenate([v.reshape(-1) for v in values])
    order = sorted(range(len(flat)), key=lambda i: (-flat[i], i))
    chosen = np.zeros(len(flat), dtype=bool)
    chosen[order[: count_kept(len(flat), reserve_p)]] = True
    return np.split(chosen, np.cumsum([v.size for v in values])[:-1])


@pytest.mark.parametrize("reserve_p", [1e-9, 0.01, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["dense", "ties", "zeros", "tiny"])
def test_selection_against_sorting(kind, reserve_p):
    rng = np.random.default_rng(3)
    values = [rng.random(shape).astype(np.float32) for shape in ((40, 30), (1,), (7, 11))]
    if kind == "ties":
        values = [np.round(v * 5).astype(np.float32) for v in values]
    elif kind == "zeros":  # 80% are exactly 0, some of them -0
        values = [np.where(rng.random(v.shape) < 0.8, np.float32(-0.0) * v, v) for v in values]
    elif kind == "tiny":  # down to the smallest numbers there are
        values = [(v * np.float32(1e-41)).astype(np.float32) for v in values]
    for found, expected, value in zip(select_top(values, reserve_p), reference_top(values, reserve_p), values):
        assert found.shape == value.shape
        assert (found.reshape(-1) == expected).all()


def test_selection_beyond_what_quantile_takes():
    values = [np.random.default_rng(1).random(9_000_000, dtype=np.float32) for _ in range(2)]
    selected = select_top(values, 0.3)
    assert sum(int(x.sum()) for x in selected) == count_kept(18_000_000, 0.3)
    threshold = min(v[s].min() for v, s in zip(values, selected))
    assert all((v[~s] <= threshold).all() for v, s in zip(values, selected))


def test_selection_refuses_what_is_no_fisher_value():
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(UsageError, match="those of b are not"):
            select_top([np.zeros(2, np.float32), np.array([bad], np.float32)], 0.5, ["a", "b"])


def test_cover():
    names = ["embed.weight", "layers.0.fc1.weight", "head.weight"]
    assert covered_names(names, "all") == names
    assert covered_names(names, "layers") == names[1:2]
    assert covered_names(names, "^(embed|head)") == [names[0], names[2]]
    with pytest.raises(UsageError, match="--cover must be all, layers or a regular expression"):
        covered_names(names, "(")


def test_fisher_select_show_and_training(data_bin, checkpoint, tmp_path):
    """The whole way: values of a real RoBERTa against the loop, two ranks, another share, a table, D in training."""
    values, mask = tmp_path / "values.safetensors", tmp_path / "mask.safetensors"
    restore = ["--restore-file", checkpoint]
    done = run_fisher(data_bin, *restore, "--fisher", values, "--mask", mask, "--reserve-p", 0.3)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "one example at a time" not in done.stdout
    loop = run_fisher(data_bin, *restore, "--fisher", tmp_path / "loop", "--loop")
    assert loop.returncode == 0, loop.stdout[-3000:]
    manifest, fast = maskfile.read(str(values), "fisher")
    _, slow = maskfile.read(str(tmp_path / "loop"), "fisher")
    assert fast.keys() == slow.keys() and manifest["examples"] == 200
    for name in slow:
        if "k_proj.bias" not in name:  # 0 but for rounding: softmax does not see it
            assert np.linalg.norm(fast[name] - slow[name]) <= 1e-3 * np.linalg.norm(slow[name]), name
    # the language-model head has no gradient here: listed, not counted; nor has fairseq 0.12.2's second set of layers
    without = [p["name"] for p in manifest["parameters"] if p["no_gradient"]]
    layers = [name for name in without if "lm_head" not in name]
    assert not any(name.rsplit(".", 1)[0].endswith(("_proj", "fc1", "fc2", "norm")) for name in layers)
    assert any("lm_head" in name for name in without)

    # two ranks write the same mask
    port = harness.free_port()
    shared = "--distributed-world-size 2 --distributed-no-spawn --distributed-backend gloo --ddp-backend legacy_ddp".split()
    shared += ["--distributed-init-method", f"tcp://127.0.0.1:{port}", "--mask", tmp_path / "two", "--reserve-p", 0.3]
    ranks = [
        Forked(fisher_command(data_bin, *restore, *shared, "--distributed-rank", rank), cwd=harness.ROOT) for rank in range(2)
    ]
    assert [process.wait(timeout=200) for process in ranks] == [0, 0], ranks[0].read() + ranks[1].read()
    mask_manifest, one = maskfile.read(str(mask), "mask")
    _, two = maskfile.read(str(tmp_path / "two"), "mask")
    assert all((one[name] == two[name]).all() for name in one)
    kept = sum(int(x.sum()) for x in one.values())
    assert kept == mask_manifest["kept_entries"] == count_kept(sum(x.size for x in one.values()), 0.3)

    # another share from the same values; a table and a plot
    from fairseq_maskplugins.cli import main

    assert main(["fisher", "select", "--fisher", str(values), "--reserve-p", "0.1", "--mask", str(tmp_path / "small")]) == 0
    _, small = maskfile.read(str(tmp_path / "small"), "mask")
    assert all((one[name] | ~small[name]).all() for name in one)  # the top tenth lies in the top three
    assert main(["fisher", "show", "--mask", str(mask), "--png", str(tmp_path / "shares.png")]) == 0
    assert (tmp_path / "shares.png").read_bytes()[:4] == b"\x89PNG"

    # D in training: outside the child nothing moves
    options = ["--optimizer", "child_tuning_adam", "--child-tuning-mode", "D", "--child-tuning-mask", mask]
    log = harness.train(
        data_bin, tmp_path / "d", *options, *restore, "--reset-optimizer", "--reset-dataloader", "--reset-meters",
        "--max-update", 10, base=FINETUNE,
    )  # fmt: skip
    assert log.losses()
    before, after = harness.load_weights(checkpoint), harness.load_weights(tmp_path / "d" / "checkpoint_last.pt")
    moved = 0
    for name, selected in one.items():
        if name in before:
            selected = torch.from_numpy(selected)
            assert torch.equal(before[name][~selected], after[name][~selected])
            moved += (before[name] != after[name])[selected].sum().item()
    assert moved > 0.5 * kept


def test_masked_language_models_and_other_ways(corpus, checkpoint, tmp_path):
    base = harness.TINY + harness.MLM
    few = ["--restore-file", checkpoint, "--max-examples", 10]
    done = run_fisher(corpus / "bin", *few, "--fisher", tmp_path / "a", "--cover", "layers", base=base)
    assert done.returncode == 0, done.stdout[-3000:]
    loop = run_fisher(corpus / "bin", *few, "--fisher", tmp_path / "b", "--cover", "layers", "--loop", base=base)
    assert loop.returncode == 0, loop.stdout[-3000:]
    manifest, fast = maskfile.read(str(tmp_path / "a"), "fisher")
    _, slow = maskfile.read(str(tmp_path / "b"), "fisher")
    assert manifest["examples"] == 10
    assert all("layer" in name for name in fast) and len(fast) < len(manifest["parameters"])
    for name in (name for name in slow if "k_proj.bias" not in name):
        assert np.linalg.norm(fast[name] - slow[name]) <= 1e-3 * np.linalg.norm(slow[name]), name
    done = run_fisher(corpus / "bin", *few, "--fisher", tmp_path / "c", "--per-batch", "--bf16", base=base)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(
    "options,message",
    [
        (["--reserve-p", "1.5", "--mask", "m"], "--reserve-p must lie in (0, 1], got 1.5"),
        (["--max-examples", "0", "--mask", "m"], "--max-examples must be at least 1, got 0"),
        ([], "give --fisher FILE, --mask FILE, or both"),
        (["--mask", "m"], "--arch must be one that fairseq knows"),
        (["--mask", "missing-folder/m"], "missing-folder/m: the folder"),
        (["--mask", "."], "--mask must name a file, got '.'"),
        (["--fisher", "one", "--mask", "./one"], "--fisher and --mask must be two files, got ./one for both"),
    ],
)
def test_bad_options(options, message):
    from fairseq_maskplugins.cli import main

    with pytest.raises(UsageError) as raised:
        main(["fisher", "data", *options])
    assert message in str(raised.value)


def test_kinds_of_weights():
    layer = "encoder.sentence_encoder.layers.2."
    assert describe(layer + "self_attn.k_proj.weight") == ("layer 2", "attention")
    assert describe(layer + "self_attn_layer_norm.weight") == ("layer 2", "layer norm")
    assert describe(layer + "fc1.weight") == ("layer 2", "feed-forward")
    assert describe("encoder.sentence_encoder.layernorm_embedding.bias") == ("outside", "layer norm")
    assert describe("encoder.sentence_encoder.embed_positions.weight") == ("outside", "embedding")


def test_select_does_not_write_over_the_values(tmp_path):
    from fairseq_maskplugins.cli import main

    path = str(tmp_path / "values")
    manifest = {"parameters": [{"name": "a", "shape": [4], "covered": True}]}
    maskfile.write(path, "fisher", {"a": np.arange(4, dtype=np.float32)}, manifest)
    with pytest.raises(UsageError, match="is one of the input files"):
        main(["fisher", "select", "--fisher", path, "--reserve-p", "0.5", "--mask", path])
    assert maskfile.read(path, "fisher")[1]["a"].tolist() == [0, 1, 2, 3]


def test_without_a_checkpoint_it_stops(data_bin, tmp_path):
    done = run_fisher(data_bin, "--mask", tmp_path / "m", "--save-dir", tmp_path / "none")
    assert done.returncode == 1 and "no such checkpoint; give one with --restore-file" in done.stdout
    assert not (tmp_path / "m").exists()
