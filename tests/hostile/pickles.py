"""Pickles written by hand, an instruction at a time, which ``pickle`` itself would not write; and the bad ones."""

import files

TWO, FOUR, STOP, REDUCE, MAKE, FILL = b"\x80\x02", b"\x80\x04", b".", b"R", b"\x81", b"b"
ONE, PAIR, TRIPLE, MARK, TUPLE = b"\x85", b"\x86", b"\x87", b"(", b"t"
TABLE, LIST, NOTHING, SET = b"}", b"]", b")", b"\x8f"
SETITEM, SETITEMS, APPENDS, ADDITEMS = b"s", b"u", b"e", b"\x90"


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


def text(value):
    value = value.encode()
    return b"X" + len(value).to_bytes(4, "little") + value


def number(value):
    content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(content)]) + content


def put(index):
    return b"r" + index.to_bytes(4, "little")


def get(index):
    return b"j" + index.to_bytes(4, "little")


def doubled(depth=100):
    """A tuple that holds the one before twice, and so on: 2 to the power of ``depth`` parts."""
    steps = (put(index) + get(index) + PAIR for index in range(depth))
    return text("ha") + b"".join(steps)


def call(callee, *arguments):
    return name(*callee) + MARK + b"".join(arguments) + TUPLE + REDUCE


def empty(kind):
    return name(*kind) + NOTHING + MAKE


def key_of(value, head=TWO):
    return head + TABLE + value + text("value") + SETITEM + STOP


def repeated(value, step, times):
    """A list of what ``step`` makes of a value, over and over."""
    return TWO + value + put(1000) + LIST + MARK + step * times + APPENDS + PAIR + STOP


ENCODE = ("_codecs", "encode")
NAMESPACE, NODE = ("argparse", "Namespace"), ("omegaconf.nodes", "StringNode")
DICT_CONFIG, METADATA = ("omegaconf.dictconfig", "DictConfig"), ("omegaconf.base", "ContainerMetadata")
STORAGE = MARK + text("storage") + name("torch", "FloatStorage") + text("0") + text("cpu") + number(1) + TUPLE + b"Q"


def tensor(offset, size, stride):
    hooks = call(("collections", "OrderedDict"))
    return call(("torch._utils", "_rebuild_tensor_v2"), STORAGE, offset, size, stride, b"\x89", hooks)


def node(value):
    return empty(NODE) + TABLE + text("_val") + value + SETITEM + FILL


# content of data.pkl: asks for memory that the file does not have
MEMORY = {
    "a bytearray": TWO + call(("__builtin__", "bytearray"), number(2**40)) + STOP,
    "digits of digits": TWO + call(ENCODE, text("ha"), text("hex")) + STOP,
    "a text as bytes over and over": repeated(
        text("x" * 1_000_000), name(*ENCODE) + get(1000) + text("latin1") + PAIR + REDUCE, 10_000
    ),
    "sets of a list": repeated(
        LIST + MARK + b"".join(map(number, range(50_000))) + APPENDS,
        name("__builtin__", "set") + get(1000) + ONE + REDUCE,
        1000,
    ),
    "counters of a table": repeated(
        TABLE + MARK + b"".join(number(n) + b"N" for n in range(50_000)) + SETITEMS,
        name("collections", "Counter") + get(1000) + ONE + REDUCE,
        1000,
    ),
    "a list of a text": TWO + call(("__builtin__", "list"), text("x" * 100)) + STOP,
    "a whole number of a text": TWO + call(("__builtin__", "long"), text("9" * 4000)) + STOP,
    "a name of a megabyte above a table": (
        TWO
        + (TABLE + text("model") + TABLE + text("k" * 1_000_000) + TABLE + MARK)
        + b"".join(text(str(n)) + LIST for n in range(2000))
        + (SETITEMS + SETITEM + SETITEM + STOP)
    ),
}
# is compared, hashed, shown or copied part by part, and has no end
ENDLESS = {
    "a key": key_of(doubled()),
    "keys": TWO + TABLE + MARK + doubled() + b"N" + SETITEMS + STOP,
    "a part of a set": FOUR + SET + MARK + doubled() + ADDITEMS + STOP,
    "parts of a set": TWO + call(("__builtin__", "set"), LIST + doubled() + b"a") + STOP,
    "a key of pairs": TWO + call(("collections", "OrderedDict"), LIST + doubled() + b"N" + PAIR + b"a") + STOP,
    "an option that is a key": key_of(node(doubled())),
    "a table of options that is a key": key_of(
        empty(DICT_CONFIG) + TABLE + text("_content") + doubled() + SETITEM + FILL
    ),
    "options": TWO + call(DICT_CONFIG, doubled()) + STOP,
    "options in a slot": (
        TWO + empty(DICT_CONFIG) + b"N" + TABLE + text("a") + doubled() + SETITEM + PAIR + FILL + STOP
    ),
    "a type of options": (
        TWO
        + (empty(DICT_CONFIG) + TABLE + MARK + text("_metadata") + empty(METADATA) + TABLE + MARK)
        + (text("ref_type") + name("__builtin__", "dict") + text("key_type") + doubled() + SETITEMS + FILL)
        + (SETITEMS + FILL + STOP)
    ),
    "an object that says how it is filled": (
        TWO
        + (empty(NAMESPACE) + put(1000) + TABLE + text("__setstate__") + name(*DICT_CONFIG) + SETITEM + FILL)
        + (doubled() + FILL + STOP)
    ),
    "a name in a message": (
        TWO + empty(NAMESPACE) + TABLE + text("__qualname__") + doubled() + SETITEM + FILL + NOTHING + REDUCE + STOP
    ),
    "an encoding": TWO + call(ENCODE, text("ha"), doubled()) + STOP,
    "a shape": TWO + tensor(number(0), doubled(), number(1) + ONE) + STOP,
    "a shape of many": TWO
    + tensor(number(10**9), MARK + number(1) * 100_000 + TUPLE, MARK + number(1) * 100_000 + TUPLE),
    "a number's type": TWO + call(("numpy", "dtype"), doubled()) + STOP,
    "a size": TWO + call(("torch", "Size"), doubled()) + STOP,
    "whole numbers that collide": (
        TWO + TABLE + MARK + b"".join(number(n * (2**61 - 1)) + b"N" for n in range(1, 60_000)) + SETITEMS + STOP
    ),
    "many tuples": (TWO + TABLE + MARK + b"".join(number(n) + ONE + b"N" for n in range(2000)) + SETITEMS + STOP),
}


def as_file(content):
    """A checkpoint with this ``data.pkl``, and one small tensor's data."""
    import torch

    return files.with_pickle(files.saved({"x": torch.zeros(1)}), content)


def as_old_file(content, keys=LIST):
    """The same in the form from before torch 1.6."""
    head = (number(0x1950A86A20F9469CFC6C), number(1001), TABLE)
    return b"".join(TWO + part + STOP for part in head) + content + TWO + keys + STOP


OLD = {
    "a key of the data": as_old_file(TWO + NOTHING + STOP, keys=LIST + doubled() + b"a"),
    "a view's key": as_old_file(
        TWO
        + (MARK + text("storage") + name("torch", "FloatStorage") + text("0") + text("cpu") + number(1))
        + (doubled() + number(0) + number(1) + TRIPLE + TUPLE + b"Q" + STOP)
    ),
}
