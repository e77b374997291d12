"""A process that has imported what commands in sandboxes need; each command is a fork of it, which takes milliseconds.

    python warm_process.py SOCKET MODULE.py

`slime sandbox` sends a request (src/sandbox/warm.h) with the descriptors of a sandbox. A fork enters it, stays out of its process space
and watches a second fork, which gives up what a command may not have and calls main() of the module. No code of a model ever runs in this
process or in the first fork. Any Python runs it: the standard library is all that it needs. It ends when its standard input does.
"""

import contextlib
import ctypes
import errno
import fcntl
import gc
import importlib.util
import json
import os
import re
import resource
import select
import signal
import socket
import struct
import sys
import traceback

MOST_BYTES = 1 << 20  # of a request
MOST_DESCRIPTORS = 16
WORD = struct.Struct("<iii4xq")  # DoorkeeperWord
NOBODY = 65534

# <sys/prctl.h>, <linux/capability.h>, <linux/seccomp.h>
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 22, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL, SECCOMP_MODE_FILTER, CAPABILITY_VERSION_3 = 4, 2, 0x20080522
SYS_CAPSET, SYS_CLOSE_RANGE = 126, 436  # of x86-64, as the filter
LAST_DESCRIPTOR = 0xFFFFFFFF

libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def prctl(what, *values):
    numbers = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    return libc.prctl(ctypes.c_int(what), *numbers)


def close_from(first):
    checked(libc.syscall(ctypes.c_long(SYS_CLOSE_RANGE), ctypes.c_uint(first), ctypes.c_uint(LAST_DESCRIPTOR), 0))


def put_on(descriptors):
    """On 0, 1, 2, ..., and nothing else stays open."""
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, len(descriptors)) for each in descriptors]
    for number, each in enumerate(high):
        os.dup2(each, number)
    close_from(len(descriptors))


def drop_capabilities():
    for capability in range(64):
        if prctl(PR_CAPBSET_DROP, capability) != 0 and ctypes.get_errno() != errno.EINVAL:  # the kernel has fewer
            checked(-1)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header, none = struct.pack("=Ii", CAPABILITY_VERSION_3, 0), bytes(24)
    checked(libc.syscall(ctypes.c_long(SYS_CAPSET), ctypes.c_char_p(header), ctypes.c_char_p(none)))


def reset_signals():
    """As they are in a Python that has just started."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def set_filter(code):
    """BPF of seccomp(2)."""

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    program = Program(len(code) // 8, code)
    checked(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program)))


def become_command(request, descriptors):
    """Its standard ones and one more, which stays open. The order is that of become_command in src/sandbox/entry.cpp."""
    os.setsid()
    put_on(descriptors)
    os.chdir(request["folder"])
    for what, value in request["limits"]:
        resource.setrlimit(what, (value, value))
    os.setpriority(os.PRIO_PROCESS, 0, request["niceness"])
    checked(prctl(PR_SET_NO_NEW_PRIVS, 1))
    drop_capabilities()
    reset_signals()
    os.environ.clear()
    os.environ.update(word.partition("=")[::2] for word in request["environment"])
    set_filter(bytes.fromhex(request["filter"]))
    checked(prctl(PR_SET_DUMPABLE, 1))  # as an exec makes it


def run_command(request, standard, failed, main):
    """In the second fork; does not return."""
    try:
        become_command(request, [*standard, failed])
    except Exception as error:  # a limit that may not be raised is a ValueError
        number = getattr(error, "errno", None) or errno.EPERM
        os.write(failed if number == errno.EBADF else 3, struct.pack("<i", number))
        os._exit(127)
    os.close(3)
    code = 1
    try:
        sys.argv = request["words"][1:]
        main(*request["words"][2:])
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def watch(process, word, failed, leash):
    """Until the command has ended, by itself or because the leash did. Then tells how."""
    put_on([word, failed, leash, os.pidfd_open(process)])
    waiting = select.poll()
    waiting.register(2, select.POLLIN)
    waiting.register(3, select.POLLIN)
    if 3 not in dict(waiting.poll()):
        for kill in (os.killpg, os.kill):  # the group may not be there yet
            with contextlib.suppress(ProcessLookupError):
                kill(process, signal.SIGKILL)
    _, status, used = os.wait4(process, 0)
    microseconds = round((used.ru_utime + used.ru_stime) * 1e6)
    failure = os.read(1, 4)
    error = struct.unpack("<i", failure)[0] if failure else 0
    return error, status, microseconds


def be_doorkeeper(request, descriptors, main):
    """In the first fork, which ends behind it."""
    prctl(PR_SET_DUMPABLE, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    word, leash, *standard, jail = descriptors[:6]
    try:
        if len(descriptors) > 6:  # while this process may still write there
            os.write(descriptors[6], b"0")
        if "person" in request:
            user, group = request["person"]
            os.setgroups([])
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
        checked(libc.setns(jail, request["namespaces"]))
        failed_read, failed_write = os.pipe()
        process = os.fork()
        if process == 0:
            run_command(request, standard, failed_write, main)
        os.close(failed_write)
        error, status, microseconds = watch(process, word, failed_read, leash)
        word = 0
    except OSError as problem:
        error, status, microseconds = problem.errno or errno.EIO, 0, 0
    os.write(word, WORD.pack(request["failed_step"] if error else 0, error, status, microseconds))


def problem_of(status, maps):
    """Why forks of this process would not be as a process of their own; None where they are."""
    if len(os.listdir("/proc/self/task")) != 1:
        return "it has threads, which a fork lacks"
    shared = [line for line in maps.splitlines() if re.match(r"\S+ .w.s", line)]
    if shared:
        return f"its forks would share memory: {shared[0].split(maxsplit=5)[-1]}"
    outside = NOBODY if os.geteuid() == 0 else os.geteuid()
    if status.st_uid == outside or status.st_mode & 0o002:
        # /proc/self/exe leads a fork out of its mounts, to this one file.
        return f"{sys.executable} belongs to the user whom commands run as outside of their sandboxes, who could change it"
    return None


def serve(listener, main):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # doorkeepers tell by themselves how it went
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(0, select.POLLIN)
    while not any(descriptor == 0 for descriptor, _ in waiting.poll()):
        connection, _ = listener.accept()
        with connection:
            text, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, MOST_DESCRIPTORS)
            if text and os.fork() == 0:
                try:
                    be_doorkeeper(json.loads(text), descriptors, main)
                finally:
                    os._exit(0)
            for descriptor in descriptors:
                os.close(descriptor)


def load(path):
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def start(path, module):
    del sys.path[0]  # the folder of this file
    main = load(module).main
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        problem = problem_of(os.stat("/proc/self/exe"), maps.read())
    if problem is not None:
        sys.exit(f"no warm process: {problem}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    gc.collect()
    gc.freeze()  # what is collected in a fork is its own
    print("ready", flush=True)
    serve(listener, main)


if __name__ == "__main__":
    start(*sys.argv[1:])
