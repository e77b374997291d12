"""What the programs of tests/sandbox/escapes share; it lies beside each of them in its sandbox."""

import ctypes
import os
import sys

SECRET_FILE, SECRET_FOLDER, PORT, SOCKET, VICTIM = sys.argv[1:6]
PORT, VICTIM = int(PORT), int(VICTIM)
LIBC = ctypes.CDLL(None, use_errno=True)


def tried():
    """Once the program is really at it: a test of an attempt that never began proves nothing."""
    os.write(1, b"tried\n")  # at once: print may write the end of a line by itself, and a limit may come between


def escaped(how):
    print("ESCAPED:", how, flush=True)
    os._exit(0)


def call(number, *arguments):
    """(result, errno) of a bare system call."""
    ctypes.set_errno(0)
    result = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    return result, ctypes.get_errno()


def must_fail(how, number, *arguments):
    result, error = call(number, *arguments)
    if result != -1:
        escaped(f"{how}: {result}")
    return error


def cannot(how, action, *arguments):
    """The action must raise OSError."""
    try:
        action(*arguments)
    except OSError:
        return
    escaped(how)
