"""What a command's process does to itself before the command begins, for :class:`forked.Forked`."""

import ctypes
import resource
import signal


def obey_permissions() -> None:
    """Root reads and writes whatever it likes: without its capabilities it is an owner of files like another."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def limit_files(size: int) -> None:
    """Files can't grow over ``size`` bytes: writes fail in the middle, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
