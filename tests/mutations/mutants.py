"""The ways in which ``mutate.py`` breaks the product, each a small edit such as a slip of the hand makes."""

from typing import NamedTuple, Tuple


class Mutant(NamedTuple):
    """An edit, and the tests that have to notice it.

    Attributes:
        name: what is wrong with the product then.
        file: under ``fairseq_maskplugins/``.
        old, new: the text ``old`` stands in the file exactly once, and is replaced.
        tests: files under ``tests/``; at least one of their tests must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: Tuple[str, ...]


def _mutant(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    named = (test.rpartition("/") for test in tests)
    return Mutant(name, file, old, new, tuple(f"{folder}{slash}test_{test}.py" for folder, slash, test in named))


MUTANTS = [
    # rates and plans
    _mutant(
        "ranks are off by one: every rate takes one token less",
        "decoupled_mlm/ranking.py",
        "np.tile(np.arange(width, dtype=np.float64), rows)",
        "np.tile(np.arange(1, width + 1, dtype=np.float64), rows)",
        "plan",
    ),
    _mutant(
        "the number masked is always rounded down: the mean rate falls short",
        "decoupled_mlm/plan.py",
        "depth += 1.0 - to_uniform(row_bits)",
        "depth += 1.0",
        "plan",
    ),
    _mutant(
        "budget whole takes a unit by its begin alone: long units are taken too often",
        "decoupled_mlm/plan.py",
        "ranked.cut if single else ranked.cut * ranked.length",
        "ranked.cut if single else ranked.cut",
        "plan",
    ),
    _mutant(
        "predicted tokens may lie outside the corrupted ones",
        "decoupled_mlm/plan.py",
        "predicted = corrupted & (depth <= (count * rates.prediction)[:, None])[:, None, :]",
        "predicted = (depth <= (count * rates.prediction)[:, None])[:, None, :].expand(corrupted.shape)",
        "plan",
    ),
    _mutant(
        "floating point asks for one copy too many: 0.6 / 0.2 is taken for 4",
        "decoupled_mlm/rates.py",
        "_ROUNDING = 1e-9",
        "_ROUNDING = -1e-9",
        "rates",
    ),
    _mutant(
        "a schedule ends one update late",
        "decoupled_mlm/rates.py",
        "share = max(update, 0) / self.max_update",
        "share = max(update, 0) / (self.max_update + 1)",
        "rates",
    ),
    _mutant(
        "validation follows the schedule: its losses no longer compare",
        "decoupled_mlm/task.py",
        "self.mask_batch(sample, self.schedule.start), model",
        "self.mask_batch(sample, self.schedule.final), model",
        "task",
        "criterion",
        "dataset",
    ),
    _mutant(
        "specials are masked",
        "decoupled_mlm/dictionary.py",
        "maskable=~special,",
        "maskable=np.ones(size, dtype=bool),",
        "dataset",
        "task",
    ),
    _mutant(
        "a special that the dictionary lists again is masked",
        "decoupled_mlm/dictionary.py",
        "special[[i for i, symbol in enumerate(dictionary.symbols) if symbol in SPECIALS]] = True",
        "pass",
        "dataset",
        "task",
    ),
    _mutant(
        "padding words of the dictionary are drawn as random tokens",
        "decoupled_mlm/dictionary.py",
        "is_padding_word(symbol) for symbol",
        "False for symbol",
        "dataset",
        "task",
    ),
    _mutant(
        "masks don't change from epoch to epoch",
        "decoupled_mlm/dataset.py",
        "self._epoch.fill_(epoch)",
        "self._epoch.fill_(1)",
        "dataset",
    ),
    _mutant(
        "masks depend on the place in the batch, not on the sample",
        "decoupled_mlm/dataset.py",
        "RowDraws(self.seed, self.epoch, ids)",
        "RowDraws(self.seed, self.epoch, np.arange(len(ids)))",
        "dataset",
    ),
    _mutant(
        "masks don't depend on the seed",
        "rng.py",
        "make_keys((self.seed, self.epoch, self.ids), stream)",
        "make_keys((1, self.epoch, self.ids), stream)",
        "rng",
    ),
    _mutant(
        "the stream's name is ignored: what is drawn for different purposes is the same",
        "rng.py",
        "_absorb_integers((stream_word(stream),) + prefix)",
        "_absorb_integers((0,) + prefix)",
        "rng",
        "plan",
    ),
    _mutant(
        "the loss is taken on tokens that were not selected",
        "decoupled_mlm/apply.py",
        "target = tokens.masked_fill(~predicted, pad)",
        "target = tokens.masked_fill(tokens == pad, pad)",
        "plan",
        "criterion",
        "dataset",
        "task",
    ),
    _mutant(
        "the measured prediction rate counts a row once for each copy",
        "decoupled_mlm/criterion.py",
        'torch.div(maskable, sample["copies"], rounding_mode="floor")',
        "maskable",
        "criterion",
    ),
    # maskers
    _mutant(
        "the first token behind a special does not begin a unit: units run over specials",
        "maskers/runs.py",
        "starts[:, 1:] |= maskable[:, 1:] & ~maskable[:, :-1]",
        "pass",
        "span",
        "whole_word",
        "plan",
    ),
    _mutant(
        "spans are as long as the law says, but for the cut at the longest",
        "maskers/span.py",
        "np.cumsum(law)[:-1]",
        "np.cumsum(law * 0.99)[:-1]",
        "span",
    ),
    _mutant(
        "the first span of a row follows the law of all others: positions at the begin are favoured",
        "maskers/span.py",
        "lengths[:, :1] = self.draw_first(u[:, :1])",
        "pass",
        "span",
    ),
    _mutant(
        "of two phrases the contained one wins",
        "maskers/pmi.py",
        "        first, end = _drop_contained(first, end)\n",
        "",
        "pmi",
    ),
    _mutant(
        "phrases run over the end of a row",
        "maskers/pmi.py",
        "follows &= place % tokens.shape[1] != 0",
        "pass",
        "pmi",
        "pmi_text",
    ),
    # lists of phrases
    _mutant(
        "a phrase's score is the maximum over segmentations, not the minimum",
        "pmi_build/score.py",
        "best = np.maximum(best, parts)",
        "best = np.where(np.isinf(best), parts, np.minimum(best, parts))",
        "pmi_build",
    ),
    _mutant(
        "n-grams run over the ends of lines",
        "pmi_build/count.py",
        "np.flatnonzero(segments[:size] == segments[n - 1 :][:size])",
        "np.arange(size)",
        "pmi_build",
    ),
    # DropToken and MAE
    _mutant(
        "the kept tokens are numbered anew: positions are lost",
        "drop_token/keep.py",
        "position = np.take_along_axis(count_before(valid), column, axis=1)",
        "position = np.broadcast_to(np.arange(size), column.shape)",
        "drop_token",
        "drop_token_model",
    ),
    _mutant(
        "all ranks drop the same tokens",
        "drop_token/model.py",
        "rank = data_parallel_rank()",
        "rank = 0",
        "drop_token_model",
    ),
    _mutant(
        "predicted tokens are dropped",
        "drop_token/model.py",
        "protected = protected | (host == dictionary.bos())",
        "protected = host == dictionary.bos()",
        "drop_token_model",
    ),
    _mutant(
        "MAE's encoder sees <mask>",
        "mae/decode.py",
        "visible = valid & (tokens != mask)",
        "visible = valid",
        "mae",
    ),
    # correcting embeddings
    _mutant(
        "the correction leaves out the tokens that stayed the same",
        "correct_embeddings/correct.py",
        "(1.0 - m + m * shares.same) * wide + constant",
        "(1.0 - m) * wide + constant",
        "correct_embeddings",
    ),
    _mutant(
        "a checkpoint can be corrected twice",
        "correct_embeddings/checkpoint.py",
        "if RECORD in state:",
        "if False:",
        "correct_embeddings",
    ),
    # ChildTuning
    _mutant(
        "/p is left out",
        "child_tuning/step.py",
        'g, scale = masked(g, bits, "grad", work), masking.scale',
        'g, scale = masked(g, bits, "grad", work), 1.0',
        "child_tuning",
    ),
    _mutant(
        "the mask of F is drawn once and for all",
        "child_tuning/masks.py",
        'make_keys((self.seed, update, cells), "child_tuning")',
        'make_keys((self.seed, 0, cells), "child_tuning")',
        "child_tuning_masks",
        "child_tuning",
    ),
    _mutant(
        "every parameter has the mask of the first: positions begin anew",
        "child_tuning/optim.py",
        "            self.total += p.numel()\n",
        "            self.total += 0\n",
        "child_tuning",
    ),
    _mutant(
        "weight decay shrinks what is frozen, also where it was switched off",
        "child_tuning/step.py",
        "decay_all = bits is None or masking.decay_all",
        "decay_all = True",
        "child_tuning",
    ),
    _mutant(
        "momentum of a loaded state moves what is frozen",
        "child_tuning/optim.py",
        "            if clear and covered and self.momentum in states:",
        "            if False:",
        "child_tuning",
        "child_tuning_fairseq",
    ),
    _mutant(
        "the Fisher threshold keeps all that tie with it",
        "child_tuning/select.py",
        "equal = np.flatnonzero(bits == threshold)[:ties]",
        "equal = np.flatnonzero(bits == threshold)",
        "fisher",
    ),
    _mutant(
        "Fisher squares the batch's gradient, not each example's",
        "child_tuning/per_example.py",
        "return torch.bmm(g.transpose(1, 2), a).pow_(2).sum(0)",
        "return torch.bmm(g.transpose(1, 2), a).sum(0).pow_(2)",
        "fisher",
    ),
    # MAP-Net and variance
    _mutant(
        "the proposer learns to prefer easy masks",
        "mapnet/preference.py",
        "* torch.sign(gap)",
        "* -torch.sign(gap)",
        "mapnet",
    ),
    _mutant(
        "importance weights are not clipped",
        "mapnet/proposal.py",
        "Weights(weight.clamp(max=limit), ",
        "Weights(weight, ",
        "mapnet",
    ),
    _mutant(
        "both masks of a pair are drawn with the same noise",
        "mapnet/proposal.py",
        'f"mapnet-{i}"',
        '"mapnet-0"',
        "mapnet",
        "mapnet_criterion",
    ),
    _mutant(
        "the data term keeps its share of the masks' variance",
        "variance/moments.py",
        "data = self.rows.variance() - mask / self.masks",
        "data = self.rows.variance()",
        "variance",
    ),
    # to other tools, and files
    _mutant(
        "exported key and query weights change places",
        "hf/weights.py",
        '"self_attn.q_proj": "attention.self.query",\n    "self_attn.k_proj": "attention.self.key",',
        '"self_attn.q_proj": "attention.self.key",\n    "self_attn.k_proj": "attention.self.query",',
        "hf",
    ),
    _mutant(
        "a file is written in place: a failure leaves half of it",
        "files.py",
        "            temporary = os.path.join(folder, _cut(os.path.basename(place)))\n            yield temporary\n",
        "            temporary = place\n            yield temporary\n",
        "files",
    ),
    _mutant(
        "a checkpoint's second name is written byte by byte",
        "saving/register.py",
        "            copy(src_path, temporary, overwrite=True)\n",
        "            copy(src_path, dst_path, overwrite=True)\n            copy(src_path, temporary, overwrite=True)\n",
        "saving",
        "resume",
    ),
    _mutant(
        "fairseq's own loading of checkpoints is unguarded",
        "checkpoints/register.py",
        "    checkpoint_utils.torch = _GuardedTorch(torch)\n",
        "",
        "hostile/checkpoints",
    ),
    _mutant(
        "torch's own unpickler reads what ours has not looked through",
        "checkpoints/reading.py",
        "        look_through(file, room, size, _known)\n",
        "",
        "hostile/memory",
    ),
    _mutant(
        "a run goes on from weights that are no numbers",
        "checkpoints/register.py",
        "    require_finite(path, weights)\n",
        "",
        "hostile/restore",
    ),
    _mutant(
        "a run that is started again at its end trains on",
        "saving/register.py",
        "if 0 < most <= done else None",
        "if 0 < most < done else None",
        "resume",
    ),
    _mutant(
        "--patience counts anew in every process",
        "saving/endings.py",
        "counter.best, counter.num_runs = best, waited",
        "counter.best, counter.num_runs = best, 0",
        "saving",
        "resume",
    ),
    _mutant(
        "a result takes the place of what is read",
        "cli/places.py",
        "any(os.path.samefile(one, path) for one in read)",
        "any(one == path for one in read)",
        "places",
    ),
    _mutant(
        "of several data directories tools read the first alone",
        "cli/checkpoint_run.py",
        "for epoch in range(1, len(shards) + 1):",
        "for epoch in range(1, 2):",
        "data_directories",
    ),
]
