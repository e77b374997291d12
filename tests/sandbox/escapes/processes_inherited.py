# ends: exited 0
# Nothing of the program outside comes along: descriptors, variables, groups, a terminal.
import resource

from escape import *

tried()
for number in range(3, 4096):
    cannot(f"descriptor {number}", os.fstat, number)
names = set(os.environ) - {"PATH", "HOME", "TMPDIR", "LANG", "USER", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "MPLBACKEND"}
names -= {"LC_CTYPE", "PWD", "SHLVL", "_", "SLIME_ESCAPE_MARK"}
if names:
    escaped(f"variables: {names}")
cannot("terminal", open, "/dev/tty")
if os.getuid() != 65534 or os.geteuid() != 65534 or os.getsid(0) != os.getpid():
    escaped("user or session")
