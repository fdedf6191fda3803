"""Files that are wrong on purpose: pieces of them, mutations, and checkpoints of every bad kind."""

import argparse
import io
import os
import pickle
import pickletools
import random
import tarfile
import zipfile
import zlib

import torch


class Payload:
    """Pickles to a call that makes a folder: what hostile code would leave behind."""

    def __init__(self, mark, call=os.mkdir):
        self.mark, self.call = mark, call

    def __reduce__(self):
        return self.call, (str(self.mark),)


def mutations(data, count, seed=0):
    """Bits flipped, bytes taken out, doubled, and cut off: ``count`` of them, the same for the same seed."""
    rng = random.Random(seed)
    for number in range(count):
        at, kind = rng.randrange(len(data)), number % 5
        if kind == 0:
            yield data[:at]
        elif kind == 1:
            yield data[:at] + data[at + rng.randint(1, 64) :]
        elif kind == 2:
            other = rng.randrange(len(data))
            yield data[:at] + data[other : other + rng.randint(1, 256)] + data[at:]
        else:
            changed = bytearray(data)
            for _ in range(rng.randint(1, 8)):
                changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            yield bytes(changed)


def saved(state, **options):
    out = io.BytesIO()
    torch.save(state, out, **options)
    return out.getvalue()


def repack(data, edit, packed=False):
    """A torch file whose records went through ``edit(name, content)``; None leaves one out."""
    out = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", kind) as new:
        for name in old.namelist():
            content = edit(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return out.getvalue()


def with_pickle(data, content):
    """A torch file with another ``data.pkl``."""
    return repack(data, lambda name, old: content if name.endswith("/data.pkl") else old)


def pickled(state, **storages):
    """``data.pkl`` with whatever is in the state, and persistent ids as they are asked for."""
    out = io.BytesIO()
    pickle.Pickler(out, protocol=2).dump(state)
    return out.getvalue()


def claims(data, count=250_000_000):
    """A tensor whose data is said to be longer than it is."""

    def edit(name, content):
        if not name.endswith("/data.pkl"):
            return content
        seen = False
        operations = list(pickletools.genops(content))
        for (operation, value, at), (_, _, end) in zip(operations, operations[1:]):
            seen = seen or value == "storage"
            if seen and operation.name.startswith("BININT"):
                return content[:at] + b"J" + count.to_bytes(4, "little") + content[end:]
        raise AssertionError("no tensor")

    return repack(data, edit)


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def laughs(depth):
    """Lists that hold the one before twice: 2 to the power of ``depth`` parts."""
    value = ["ha"]
    for _ in range(depth):
        value = [value, value]
    return value


def endless():
    value = {}
    value["again"] = value
    return value


def deep_pickle(depth):
    """Lists in lists, written by hand: pickle itself would recurse."""
    return b"\x80\x02}X\x05\x00\x00\x00model" + b"]" * depth + b"a" * (depth - 1) + b"s."


def global_pickle(module, name, *argument):
    """Calls ``module.name(argument)`` in protocol 2."""
    text = b"".join(b"X" + len(a).to_bytes(4, "little") + a.encode() for a in argument)
    return (
        b"\x80\x02c" + f"{module}\n{name}\n".encode() + text + {0: b")", 1: b"\x85", 2: b"\x86"}[len(argument)] + b"R."
    )


def stack_global_pickle(module, name, argument):
    """The same in protocol 4, whose names may have dots."""

    def text(value):
        return b"\x8c" + bytes([len(value)]) + value.encode()

    return b"\x80\x04" + text(module) + text(name) + b"\x93" + text(argument) + b"\x85R."


def fill_class_pickle():
    """Sets an attribute of a class that may be named."""
    name = b"X\x0c\x00\x00\x00__contains__"
    return b"\x80\x02cargparse\nNamespace\n" + b"N}" + name + b"ccollections\nOrderedDict\ns\x86b."


def zip_of(records, packed):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as file:
        for name, content in records:
            with file.open(name, "w", force_zip64=True) as record:
                for part in content:
                    record.write(part)
    return out.getvalue()


def bomb(name, size=1 << 29):
    """A packed torch file with a record of ``size`` zeros."""
    zeros = bytes(1 << 20)
    records = [("archive/data.pkl", [pickle.dumps({"model": {}}, 2)]), ("archive/version", [b"3\n"])]
    records = [(n, c) for n, c in records if n != name]
    return zip_of([(name, (zeros for _ in range(size >> 20))), *records], packed=True)


def overlapping(data, times=2000):
    """A zip directory that lists the same content over and over under new names."""
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a") as file:
        first = max(file.infolist(), key=lambda info: info.file_size)
        for number in range(times):
            copy = zipfile.ZipInfo(f"{first.filename}{number}")
            copy.header_offset, copy.file_size, copy.compress_size, copy.CRC = (
                first.header_offset,
                first.file_size,
                first.compress_size,
                first.CRC,
            )
            file.filelist.append(copy)
        file._didModify = True
    return out.getvalue()


def tar_of(content):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        for name in ("storages", "tensors", "pickle"):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return out.getvalue()


def script():
    class Nothing(torch.nn.Module):
        def forward(self, x):
            return x

    out = io.BytesIO()
    torch.jit.save(torch.jit.script(Nothing()), out)
    return out.getvalue()


def gzip_bomb(size, line=b"a" * 50 + b"\n"):
    packer = zlib.compressobj(9, wbits=31)
    block = (line * ((1 << 20) // len(line) + 1))[: 1 << 20]
    return b"".join([packer.compress(block) for _ in range(size >> 20)]) + packer.flush()


def namespace(**options):
    return argparse.Namespace(**options)
