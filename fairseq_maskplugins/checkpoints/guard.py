"""What is asked of a checkpoint file beside unpickling it safely (torch, no fairseq).

A file may claim to be larger than it is, be packed a thousandfold, refer to the same part a billion times, or hold
options that fairseq evaluates as Python. Each is refused before it costs memory or time, or runs.
"""

import argparse
import ast
import contextlib
import os
import tarfile
import zipfile
from typing import Any, BinaryIO, Dict, Iterable, Iterator, Optional, Tuple

import torch

from ..compat import storage_of
from .rebuild import Refused

MOST_OPTIONS = 10_000  # they have about a thousand, and omegaconf is slow with many
MOST_PARTS = 10_000_000
DEEPEST = 64
LONGEST_CODE = 1000
MOST_REPEATED = 10_000
LONGEST_NAME = 200

# options whose text fairseq hands to eval()
EVALUATED = frozenset(
    (
        "adafactor_eps adam_betas adamax_betas adaptive_input_cutoff adaptive_softmax_cutoff character_filters "
        "conv_aggregator_layers conv_feature_layers decoder_attention decoder_glu decoder_kernel_size_list decoder_layers "
        "decoder_xformers_att_config downsample encoder_attention encoder_glu encoder_kernel_size_list encoder_layers "
        "encoder_xformers_att_config gated_attention lamb_betas left_pad_source left_pad_target pipeline_balance "
        "pipeline_decoder_balance pipeline_decoder_devices pipeline_devices pipeline_encoder_balance "
        "pipeline_encoder_devices pretrained project_input self_attention weight_softmax wer_args xformers_att_config"
    ).split()
)
_HARMLESS = (
    *(ast.Expression, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Name, ast.Load),
    *(ast.UnaryOp, ast.USub, ast.UAdd, ast.BinOp, ast.Add, ast.Mult),
)


def file_size(file: BinaryIO) -> int:
    at = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(at)
    return size


def check_archive(file: BinaryIO) -> Optional[Dict[str, int]]:
    """Look at the directory of a file before torch does.

    torch writes its zip files unpacked, with one directory at the end. One that is otherwise may read differently to
    another program, or fill the memory.

    Returns:
        sizes of the records of tensors' data by their keys; None for a file from before torch 1.6, which is no zip.

    Raises:
        ValueError: it is damaged.
        Refused: it is something else, that would cost memory or run.
    """
    size = file_size(file)
    file.seek(0)
    head = file.read(512)
    if head[:4] != b"PK\x03\x04":
        with contextlib.suppress(tarfile.HeaderError):
            tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
            raise Refused("it is a tar file, which torch stopped writing in 2017")
        return None
    file.seek(max(0, size - 98))
    tail = file.read(98)
    if tail[-22:-18] != b"PK\x05\x06":
        raise ValueError("it is damaged or cut off: no zip directory at its end")
    # a directory of large files stands before it; another place could be named than the one that is read here
    if tail[-42:-38] == b"PK\x06\x07" and tail[-34:-26] != (size - 98).to_bytes(8, "little"):
        raise ValueError("it is damaged: it has two zip directories")
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
    except Exception as error:  # a damaged directory may lead anywhere
        raise ValueError(f"it is damaged: {' '.join(str(error).split())[:100] or type(error).__name__}") from None
    names = [record.filename for record in records]
    if not records or len({name.lower() for name in names}) < len(names):
        raise ValueError("it is damaged: its zip directory is empty or lists a name twice")
    top = names[0].split("/", 1)[0]
    if any(name.startswith(f"{top}/code/") or name == f"{top}/constants.pkl" for name in names):
        raise Refused("it is a TorchScript archive, which holds code; fairseq writes no such files")
    if any(r.compress_type != zipfile.ZIP_STORED or r.compress_size != r.file_size for r in records):
        raise Refused("it is a packed zip file, and torch writes them unpacked; unpacking it could fill the memory")
    if sum(names_size(r) + r.file_size for r in records) > size or min(r.header_offset for r in records) != 0:
        raise ValueError("it is damaged: its zip directory claims more than the file holds")
    data = f"{top}/data/"
    return {name[len(data) :]: r.file_size for name, r in zip(names, records) if name.startswith(data)}


def names_size(record: zipfile.ZipInfo) -> int:
    """Bytes that a record takes beside its content, at least: a header of 30 before it."""
    return 30 + len(record.filename)


def check_state(state: Any, size: int) -> None:
    """Check what a checkpoint file of ``size`` bytes was loaded as.

    Raises:
        Refused: a tensor that is larger than its data, parts that refer to each other endlessly, options that are code.
    """
    if not isinstance(state, dict):
        return
    for key in ("args", "cfg"):
        count_parts(state.get(key), MOST_OPTIONS, "its options")
    count_parts(state, MOST_PARTS, "it")
    check_tensors(find_tensors(state), size)
    for key in ("args", "cfg"):
        check_evaluated(state.get(key))


def _parts(value: Any) -> Optional[Iterable[Any]]:
    """What a value is made of; None for one that is not taken apart."""
    if isinstance(value, dict):
        return [part for pair in value.items() for part in pair]
    if isinstance(value, (list, tuple, set)):
        return value
    if isinstance(value, argparse.Namespace) or type(value).__module__.startswith("omegaconf."):
        return [part for name, part in getattr(value, "__dict__", {}).items() if name != "_parent"]
    return None


def count_parts(value: Any, most: int, what: str) -> int:
    """How many parts a value has when every reference is followed; what is referred to twice counts twice.

    Raises:
        Refused: more than ``most``, more than 64 levels, or one that contains itself.
    """
    known: Dict[int, Tuple[int, int]] = {}

    def count(part: Any, depth: int) -> Tuple[int, int]:
        children = _parts(part)
        if children is None:
            return 1, 0
        if id(part) not in known:
            known[id(part)] = (1, DEEPEST)  # to whoever meets it before it is counted: it contains itself
            total, height = 1, 0
            for child in children:
                more, below = count(child, depth + 1) if depth < DEEPEST else (0, DEEPEST)
                total, height = total + more, max(height, below + 1)
                if total > most or height > DEEPEST:
                    raise Refused(f"{what} would have more than {most} parts or {DEEPEST} levels")
            known[id(part)] = (total, height)
        return known[id(part)]

    return count(value, 0)[0]


def find_tensors(value: Any, name: str = "") -> Iterator[Tuple[str, torch.Tensor]]:
    """Tensors with the keys that lead to them, each once. The value must have passed :func:`count_parts`."""
    seen = set()
    waiting = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        if id(value) in seen:
            continue
        if isinstance(value, torch.Tensor):
            seen.add(id(value))
            yield name, value
        elif isinstance(value, dict):
            seen.add(id(value))
            above = f"{name[:LONGEST_NAME]}." if name else ""  # there may be millions of a key of megabytes
            waiting += [(above + str(key)[:LONGEST_NAME], part) for key, part in value.items()]
        elif _parts(value) is not None:
            seen.add(id(value))
            waiting += [(name, part) for part in _parts(value)]


def check_tensors(tensors: Iterable[Tuple[str, torch.Tensor]], size: int) -> None:
    """Tensors must be plain, hold no more numbers than their data, and all of it must fit in the file."""
    total, storages = 0, set()
    for name, tensor in tensors:
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise Refused(f"{name} is no plain tensor")
        address, held = storage_of(tensor)
        if tensor.numel() * tensor.element_size() > held:
            raise Refused(f"{name} of shape {tuple(tensor.shape)} is larger than its data")
        if address not in storages:
            storages.add(address)
            total += held
    if total > size:
        raise Refused(f"its tensors claim {total} bytes, the file has {size}")


def check_evaluated(options: Any) -> None:
    """Refuse code in those options that fairseq evaluates.

    Args:
        options: of a checkpoint, a namespace or a nested dictionary. It must have passed :func:`count_parts`.

    Raises:
        Refused: names the option.
    """
    waiting = [options]
    while waiting:
        value = waiting.pop()
        named = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        if named is not None and _parts(value) is not None:
            for name, part in named.items():
                held = getattr(part, "__dict__", {})
                for text in (part, held.get("_val"), held.get("_content")) if name in EVALUATED else ():
                    if isinstance(text, (str, bytes)) and not is_harmless(text):
                        raise Refused(f"its option {name} could run code: {text[:80]!r}")
        waiting += [part for part in _parts(value) or () if _parts(part) is not None]


def is_harmless(text: Any) -> bool:
    """Whether evaluating a text only makes numbers, texts, lists and the like, and not many."""
    # on its way to eval() "${...}" is filled in by omegaconf, and a backslash is read by Hydra: it would be another text
    if isinstance(text, bytes) or len(text) > LONGEST_CODE or "${" in text or "\\" in text:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return True  # so evaluating it fails
    except (RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(tree))
    repeated = 1
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for side in (node.left, node.right):
                repeated *= max(1, side.value) if isinstance(side, ast.Constant) and type(side.value) is int else 1
    return all(isinstance(node, _HARMLESS) for node in nodes) and repeated <= MOST_REPEATED
