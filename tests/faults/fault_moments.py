"""A command that is watched while it changes files, and struck at a chosen moment: killed, or told that the disk is full.

The kernel hands each system call that creates, writes, renames or removes a file to the test before it is done (seccomp's
user notification, see seccomp_unotify(2)): so every moment that a kill or a full disk can come at can be chosen, whoever
calls, be it Python, torch, safetensors or DuckDB. Linux 5.5 and newer; no rights are needed.
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import multiprocessing
import os
import platform
import select
import signal
import struct
import threading
from multiprocessing import reduction
from typing import Callable, List, NamedTuple, Optional, Union

from forked import Forked

KILL = "kill"
_NUMBERS = {
    "x86_64": (
        0xC000003E,
        317,
        "write 1 open 2 pwrite64 18 writev 20 sendfile 40 fsync 74 fdatasync 75 truncate 76 ftruncate 77 rename 82 mkdir 83 "
        "rmdir 84 creat 85 link 86 unlink 87 symlink 88 openat 257 mkdirat 258 unlinkat 263 renameat 264 linkat 265 "
        "symlinkat 266 fallocate 285 pwritev 296 renameat2 316 copy_file_range 326",
    ),
    "aarch64": (
        0xC00000B7,
        277,
        "mkdirat 34 unlinkat 35 symlinkat 36 linkat 37 renameat 38 truncate 45 ftruncate 46 fallocate 47 openat 56 write 64 "
        "writev 66 pwrite64 68 pwritev 70 sendfile 71 fsync 82 fdatasync 83 renameat2 276 copy_file_range 285",
    ),
}
# where each call has its file: a descriptor (fd), a path, or a path that is relative to a descriptor (at)
_FD = {"write": 0, "pwrite64": 0, "writev": 0, "pwritev": 0, "fsync": 0, "fdatasync": 0, "ftruncate": 0, "fallocate": 0}
_FD.update(sendfile=0, copy_file_range=2)
_AT = {"openat": 0, "mkdirat": 0, "unlinkat": 0, "renameat": 2, "renameat2": 2, "linkat": 2, "symlinkat": 1}
_PATH = {
    "open": 0,
    "creat": 0,
    "truncate": 0,
    "mkdir": 0,
    "rmdir": 0,
    "unlink": 0,
    "rename": 1,
    "link": 1,
    "symlink": 1,
}
_NEEDS_SPACE = {*_FD, *_AT, *_PATH} - {"fsync", "fdatasync", "unlink", "unlinkat", "rmdir"}
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1


class Event(NamedTuple):
    """A call that is about to be made: its number among the watched ones (from 1), its name and its file."""

    number: int
    call: str
    path: str
    writes: bool = True

    @property
    def needs_space(self) -> bool:
        """Whether a full disk can refuse it."""
        return self.writes and self.call in _NEEDS_SPACE


class Watched(NamedTuple):
    returncode: int
    text: str
    events: List[Event]


# None: let it be; KILL: the whole process group; a number: the call fails with that errno
Strike = Callable[[Event], Union[None, str, int]]


def watch(
    command,
    root,
    strike: Strike = lambda event: None,
    reads: bool = False,
    timeout: float = 300,
    **options,
) -> Watched:
    """Run a command and strike at what it does to files below ``root``.

    Args:
        command: what :func:`forked.can_fork` takes.
        root: folder; what lies outside is not watched.
        strike: is asked before each call.
        reads: also watch files that are opened to be read.
        options: of :class:`forked.Forked`.
    """
    ours, theirs = multiprocessing.Pipe()
    process = Forked([str(part) for part in command], prepare=functools.partial(_install, theirs, reads), **options)
    theirs.close()
    watcher = _Watcher(process, os.path.realpath(root), strike)
    thread = threading.Thread(target=watcher.serve, args=(ours,), daemon=True)
    thread.start()
    try:
        process.wait(timeout)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        thread.join()
        ours.close()
    if watcher.error is not None:
        raise watcher.error
    return Watched(process.returncode, process.read(), watcher.events)


def kill_at(number: int) -> Strike:
    return lambda event: KILL if event.number >= number else None


def full_from(number: int) -> Strike:
    """From a moment on the disk is full: what needs space fails, what frees it does not."""
    return lambda event: errno.ENOSPC if event.number >= number and event.needs_space else None


class _Watcher:
    def __init__(self, process: Forked, root: str, strike: Strike):
        self.process, self.root, self.strike = process, root, strike
        self.events: List[Event] = []
        self.error: Optional[BaseException] = None
        table = _NUMBERS[platform.machine()][2].split()
        self.names = dict(zip(map(int, table[1::2]), table[::2]))

    def serve(self, connection) -> None:
        try:
            listener = reduction.recv_handle(connection)
        except (EOFError, OSError) as error:
            self.error = RuntimeError(f"the command could not be watched: {error!r}")
            return
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        try:
            while True:
                _, happened = poll.poll()[0]
                if not happened & select.POLLIN:  # the last process that was watched has gone
                    return
                self._answer(listener)
        except BaseException as error:
            self.error = error
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        finally:
            os.close(listener)

    def _answer(self, listener: int) -> None:
        message = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECEIVE, message)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # it was killed meanwhile
                return
            raise
        identity, pid, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", message)
        answer = self._judge(pid, self.names[number], arguments)
        if answer == KILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            return
        reply = struct.pack("=QqiI", identity, 0, -answer if answer else 0, 0 if answer else _CONTINUE)
        with contextlib.suppress(FileNotFoundError):
            fcntl.ioctl(listener, _SEND, reply)

    def _judge(self, pid: int, call: str, arguments: List[int]) -> Union[None, str, int]:
        try:
            path = _find_path(pid, call, arguments)
        except OSError:  # it went away, or the descriptor is none
            return None
        if path != self.root and not path.startswith(self.root + os.sep):
            return None
        flags = {"open": arguments[1], "openat": arguments[2]}.get(call)
        writes = flags is None or bool(flags & _CHANGES)
        event = Event(len(self.events) + 1, call, path, writes)
        self.events.append(event)
        return self.strike(event)


def _find_path(pid: int, call: str, arguments: List[int]) -> str:
    if call in _FD:
        return os.readlink(f"/proc/{pid}/fd/{arguments[_FD[call]]}")
    if call in _PATH:
        folder, pointer = None, arguments[_PATH[call]]
    else:
        place = _AT[call]
        folder, pointer = ctypes.c_int32(arguments[place] & 0xFFFFFFFF).value, arguments[place + 1]
    path = _read_string(pid, pointer)
    if not os.path.isabs(path):
        base = f"/proc/{pid}/cwd" if folder in (None, -100) else f"/proc/{pid}/fd/{folder}"
        path = os.path.join(os.readlink(base), path)
    above, name = os.path.split(os.path.normpath(path))
    return os.path.join(os.path.realpath(above), name)


def _read_string(pid: int, pointer: int) -> str:
    found = b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        while b"\0" not in found and len(found) < 8192:
            memory.seek(pointer + len(found))
            found += memory.read(256 - (pointer + len(found)) % 256)  # never over the end of a page
    return os.fsdecode(found.split(b"\0", 1)[0])


_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _install(connection, reads: bool) -> None:
    """In the command's process: from here on, its calls are handed to the other end of the connection."""
    architecture, seccomp, table = _NUMBERS[platform.machine()]
    words = table.split()
    allow, notify = (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x7FC00000)

    def load(offset):
        return (0x20, 0, 0, offset)

    program = [load(4), (0x15, 1, 0, architecture), allow, load(0)]
    for name, number in zip(words[::2], map(int, words[1::2])):
        block = [notify]
        if name in ("write", "writev"):  # standard output and error are no files of the command's
            block = [load(16), (0x25, 0, 1, 2), notify, allow]
        elif name in ("open", "openat") and not reads:
            block = [load(24 if name == "open" else 32), (0x45, 0, 1, _CHANGES), notify, allow]
        program += [(0x15, 0, len(block), number), *block]
    program.append(allow)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.prctl(38, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3)  # no new privileges: what lets us filter without rights
    listener = libc.syscall(
        ctypes.c_long(seccomp),
        ctypes.c_ulong(1),
        ctypes.c_ulong(8),
        ctypes.byref(Program(len(program), ctypes.addressof(code))),
    )
    if listener < 0:
        raise OSError(ctypes.get_errno(), "the kernel does not let a test watch system calls (seccomp notification)")
    reduction.send_handle(connection, listener, os.getppid())
    os.close(listener)
    connection.close()
