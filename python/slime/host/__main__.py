"""python3 -m slime.host: serves the program at the other end of descriptor 3, until it closes it."""

import os
import sys

DESCRIPTOR = 3


def _adopt_orphans():
    """What users' code starts stays among this process's descendants, so that it is counted, and killed with it."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except Exception:
        pass  # a Python without ctypes: what leaves the session is lost sight of


def _name_the_program():
    """Parts of the package start the program themselves, as that of the run: the one that started this host."""
    try:
        program = os.readlink(f"/proc/{os.getppid()}/exe")
    except OSError:
        return
    if os.path.basename(program) == "slime":
        os.environ.setdefault("SLIME_BINARY", program)


def main():
    from slime.host.frames import open_descriptor
    from slime.host.service import serve

    try:
        connection = open_descriptor(int(sys.argv[1]) if len(sys.argv) > 1 else DESCRIPTOR)
    except OSError as error:
        sys.exit(f"slime.host is started by slime, with a socket as descriptor {DESCRIPTOR}: {error}")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    _adopt_orphans()
    _name_the_program()
    code = 1
    try:
        serve(connection)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # threads of users' code do not hold it up


if __name__ == "__main__":
    main()
