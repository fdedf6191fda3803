"""The data path: what is read, in which order, and that masks follow the sample and nothing else."""

import gc
import multiprocessing
import weakref

import harness
import numpy as np
import pytest
from fairseq.data import TokenBlockDataset, data_utils

from fairseq_maskplugins.decoupled_mlm.blocks import TokenStream, pad_rows
from fairseq_maskplugins.decoupled_mlm.dataset import build_blocks


def masks_by_id(task, batches, rates=None):
    """``{id: (source, target)}`` of masked batches, unpadded."""
    found = {}
    for batch in batches:
        sample = task.mask_batch(batch, rates or task.schedule.start)
        rows = zip(sample["id"].tolist(), sample["net_input"]["src_tokens"], sample["target"], sample["net_input"]["src_lengths"])
        for index, source, target, length in rows:
            found.setdefault(index, []).append((source[:length].tolist(), target[:length].tolist()))
    return found


@pytest.mark.parametrize("mode", ["none", "complete", "complete_doc", "eos"])
def test_blocks_are_those_of_fairseq(mode, data_bin, monkeypatch):
    if not hasattr(np, "compat"):  # mode "eos" of TokenBlockDataset asks numpy 2 for a name that is gone
        monkeypatch.setattr(np, "compat", type("compat", (), {"long": np.int64}), raising=False)
    task, cfg = harness.make_task(data_bin, "--sample-break-mode", mode)
    task.load_dataset("train")
    ours = task.dataset("train")
    source = data_utils.load_indexed_dataset(str(data_bin / "train"), task.dictionary)
    stock = TokenBlockDataset(source, source.sizes, 31, pad=1, eos=2, break_mode=mode)
    assert len(ours) == len(stock) > 50
    assert all(np.array_equal(ours[i][1], stock[i].numpy()) for i in range(len(stock)))
    assert np.array_equal(ours.sizes, np.asarray(stock.sizes) + 1)


@pytest.mark.parametrize("impl", ["mmap", "cached", "lazy"])
def test_every_data_set_format(impl, corpus, tmp_path):
    """A memory-mapped data set is read through one buffer, others item by item: same rows, same masks."""
    files = corpus / "train.sp", corpus / "valid.sp", tmp_path / "bin"
    harness.preprocess(*files, "--dataset-impl", impl, "--srcdict", corpus / "bin" / "dict.txt")
    expected = masks_by_id(*_task_and_batches(corpus / "bin"))
    assert masks_by_id(*_task_and_batches(tmp_path / "bin")) == expected


def _task_and_batches(data, *options, **kwargs):
    task, cfg = harness.make_task(data, *options)
    return task, harness.batches(task, cfg, **kwargs)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("epoch", [1, 3])
def test_masks_do_not_depend_on_workers(workers, epoch, data_bin):
    """Also in later epochs of workers that fairseq keeps alive, which is where a plain epoch attribute goes stale."""
    alone = masks_by_id(*_task_and_batches(data_bin, epoch=epoch))
    task, cfg = harness.make_task(data_bin)
    task.load_dataset("train")
    iterator = task.get_batch_iterator(task.dataset("train"), max_sentences=8, seed=3, num_workers=workers, epoch=1)
    for _ in range(epoch):
        found = masks_by_id(task, list(iterator.next_epoch_itr()))
    assert found == alone


def test_masks_do_not_depend_on_the_batch(data_bin):
    options = ["--random-token-prob", "0.1", "--leave-unmasked-prob", "0.1", "--sample-break-mode", "complete"]
    small = masks_by_id(*_task_and_batches(data_bin, *options))
    task, cfg = harness.make_task(data_bin, *options)
    large = masks_by_id(task, harness.batches(task, cfg, max_sentences=None, max_tokens=700))
    assert small == large
    sharded = {}
    for shard in (0, 1):
        found = [batch for batch in harness.batches(task, cfg, num_shards=2, shard_id=shard) if batch]
        sharded.update(masks_by_id(task, found))  # a shard that runs out of batches gives empty ones
    assert sharded == small


def test_masks_change_with_the_epoch_and_validation_masks_do_not(data_bin):
    task, cfg = harness.make_task(data_bin)
    first, second = (masks_by_id(task, harness.batches(task, cfg, epoch=epoch)) for epoch in (1, 2))
    changed = sum(first[i] != second[i] for i in first)
    assert first.keys() == second.keys() and changed == len(first)
    # the trainer makes a validation iterator anew for every validation
    validations = [masks_by_id(task, harness.batches(task, cfg, split="valid", shuffle=False)) for _ in range(2)]
    assert validations[0] == validations[1]


def test_same_order_and_batches_as_stock(data_bin):
    task, cfg = harness.make_task(data_bin, "--sample-break-mode", "complete")
    stock, _ = harness.make_task(data_bin, "--task", "masked_lm", "--sample-break-mode", "complete")
    for one in (task, stock):
        one.load_dataset("train")
    assert np.array_equal(task.dataset("train").ordered_indices(), stock.dataset("train").ordered_indices())


@pytest.mark.parametrize("multiple", [1, 8])
def test_no_row_is_lost(multiple, data_bin):
    """fairseq-fixed drops the last rows of a data set where they are fewer than --required-batch-size-multiple."""
    task, cfg = harness.make_task(data_bin)
    found = harness.batches(task, cfg, split="valid", required_batch_size_multiple=multiple, max_sentences=16)
    assert sorted(i for batch in found for i in batch["id"].tolist()) == list(range(len(task.dataset("valid"))))


def test_max_tokens_counts_copies(data_bin):
    task, cfg = harness.make_task(data_bin, "--corruption-rate", "0.1", "--prediction-rate", "0.4")
    found = harness.batches(task, cfg, max_sentences=None, max_tokens=500)
    for batch in found:
        masked = task.mask_batch(batch, task.schedule.start)
        assert masked["net_input"]["src_tokens"].numel() <= 500
    assert max(len(batch["id"]) for batch in found) == 500 // (4 * 32)
    with pytest.raises(ValueError, match="train: no sequence is as short as .*--max-tokens allow; the shortest has "):
        harness.batches(task, cfg, max_sentences=None, max_tokens=1, max_positions=1, ignore_invalid_inputs=True)
    with pytest.raises(
        ValueError, match="--max-tokens must hold the longest sequence of .*train, 32 tokens in 4 copies, got 100"
    ):
        harness.batches(task, cfg, max_sentences=None, max_tokens=100)


@pytest.mark.parametrize("method", ["none", "truncate", "random_crop"])
def test_shorten_method(method, data_bin):
    options = ["--sample-break-mode", "eos", "--tokens-per-sample", "10", "--shorten-method", method]
    task, cfg = harness.make_task(data_bin, *options)
    epochs = []
    for epoch in (1, 2):
        found = harness.batches(task, cfg, epoch=epoch, num_workers=1)
        epochs.append({i: row[: int(n)].tolist() for b in found for i, row, n in zip(b["id"].tolist(), *b["net_input"].values())})
    longest = max(map(len, epochs[0].values()))
    assert longest > 10 if method == "none" else longest == 10  # <s> included
    assert (epochs[0] != epochs[1]) == (method == "random_crop")


def test_several_data_directories(corpus, tmp_path):
    """Epoch e reads directory (e - 1) mod N, and old shards are let go."""
    harness.preprocess(corpus / "valid.sp", corpus / "valid.sp", tmp_path / "two", "--srcdict", corpus / "bin" / "dict.txt")
    task, cfg = harness.make_task(f"{corpus / 'bin'}:{tmp_path / 'two'}")
    sizes = []
    for epoch in (1, 2, 3):
        task.load_dataset("train", epoch=epoch)
        task.get_batch_iterator(task.dataset("train"), max_sentences=8, epoch=epoch)
        sizes.append(len(task.dataset("train")))
    assert sizes[0] == sizes[2] != sizes[1]
    assert len(task.dataset_to_epoch_iter) == 1


def test_a_shard_that_was_read_leaves_no_workers_behind(corpus):
    """With data directories joined by ':' the trainer loads the next one and only then lets go of the last iterator. Its
    workers have ended by then, the rest is freed with the next directory, and it could still be used."""
    data = corpus / "bin"
    task, cfg = harness.make_task(f"{data}:{data}")
    options = dict(max_sentences=8, seed=3, num_workers=2, disable_iterator_cache=True, data_buffer_size=4)
    gc.collect()
    gc.disable()
    try:
        task.load_dataset("train", epoch=1)
        iterator = task.get_batch_iterator(task.dataset("train"), epoch=1, **options)
        found = [batch["id"].tolist() for batch in iterator.next_epoch_itr()]
        workers = multiprocessing.active_children()
        assert len(workers) >= 2 and iterator.end_of_epoch() and iterator.next_epoch_idx == 2
        task.load_dataset("train", epoch=2)
        assert iterator.end_of_epoch() and iterator.next_epoch_idx == 2
        assert len(multiprocessing.active_children()) == len(workers) - 2
        held = weakref.ref(iterator)
        del iterator
        task.load_dataset("train", epoch=2)
        assert held() is None
        # an epoch that is not over is left alone
        iterator = task.get_batch_iterator(task.dataset("train"), epoch=2, **options)
        rest = iterator.next_epoch_itr()
        next(rest)
        task.load_dataset("train", epoch=3)
        assert len(list(rest)) == len(found) - 1
        # and one that was let go can be used again
        task.load_dataset("train", epoch=4)
        iterator = task.get_batch_iterator(task.dataset("train"), epoch=4, **options)
        list(iterator.next_epoch_itr())
        task.load_dataset("train", epoch=5)
        assert len(list(iterator.next_epoch_itr())) == len(found)
    finally:
        gc.enable()


def test_nothing_special_is_masked_or_drawn(corpus):
    """80-10-10 with words that pad the dictionary: no special or padding word as target, replacement or corruption."""
    task, cfg = harness.make_task(
        corpus / "bin", "--random-token-prob", "0.5", "--leave-unmasked-prob", "0.1", "--mask-prob", "0.9"
    )
    dictionary = task.dictionary
    filler = {i for i, symbol in enumerate(dictionary.symbols) if symbol.startswith("madeupword")}
    assert filler, "the corpus should have a padded dictionary"
    drawn, special = set(), set(range(dictionary.nspecial)) | {task.mask_idx}
    for epoch in range(1, 5):
        for batch in harness.batches(task, cfg, epoch=epoch):
            sample = task.mask_batch(batch, task.schedule.start)
            source, tokens = sample["net_input"]["src_tokens"], sample["tokens"]
            changed = source != tokens
            assert not special & set(tokens[changed].tolist())
            assert not special & set(sample["target"][sample["target"] != dictionary.pad()].tolist())
            drawn |= set(source[changed & (source != task.mask_idx)].tolist())
    assert len(drawn) > 60 and not drawn & (filler | special)


def test_dictionary_with_a_special_listed_again(corpus, tmp_path):
    """``<s> ... #fairseq:overwrite`` gives a second id to ``<s>``; it is a special too."""
    lines = (corpus / "bin" / "dict.txt").read_text().splitlines()
    lines.insert(5, "<s> 7 #fairseq:overwrite")
    (tmp_path / "dict.txt").write_text("\n".join(lines) + "\n")
    task, _ = harness.make_task(tmp_path)
    vocabulary = task.planner.vocabulary
    again = task.dictionary.symbols.index("<s>", 4)
    assert not vocabulary.maskable[again] and again not in vocabulary.replacements


def test_dictionary_that_lists_mask(corpus, tmp_path):
    """One id for ``<mask>``, the embedding as large as the dictionary, data without it accepted."""
    lines = (corpus / "bin" / "dict.txt").read_text().splitlines()
    (tmp_path / "d.txt").write_text("\n".join([*lines[:9], "<mask> 0", *lines[9:]]) + "\n")
    harness.preprocess(corpus / "train.sp", corpus / "valid.sp", tmp_path / "bin", "--srcdict", tmp_path / "d.txt")
    task, cfg = harness.make_task(tmp_path / "bin")
    assert task.mask_idx == 4 + 9 and task.dictionary.symbols.count("<mask>") == 1
    assert not task.planner.vocabulary.maskable[13]
    model = task.build_model(cfg.model)
    assert model.encoder.sentence_encoder.embed_tokens.num_embeddings == len(task.dictionary)
    masked = task.mask_batch(harness.batches(task, cfg)[0], task.schedule.start)
    assert (masked["net_input"]["src_tokens"] == 13).any()


def test_token_stream_without_a_buffer():
    items = [np.arange(3), np.arange(0), np.arange(10, 14), np.arange(20, 21)]
    stream = TokenStream([len(x) for x in items], items.__getitem__)
    flat = np.concatenate(items)
    for start in range(len(flat) + 1):
        for end in range(start, len(flat) + 1):
            assert np.array_equal(stream.read(start, end), flat[start:end])


def test_pad_rows():
    out = pad_rows([np.array([5], dtype=np.uint16), np.array([6, 7, 8])], pad=1, bos=0)
    assert out.tolist() == [[0, 5, 1, 1], [0, 6, 7, 8]] and out.dtype == np.int64


def test_long_lines_keep_their_length():
    """fairseq keeps block sizes in 16 bits where --tokens-per-sample is small, and a long line wraps around."""
    blocks = build_blocks(np.array([70_000, 5]), "eos", 10)
    assert (blocks[:, 1] - blocks[:, 0]).tolist() == [70_000, 5]
