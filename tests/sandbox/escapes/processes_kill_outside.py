# ends: exited 0
# No number of a process outside means anything here.
import signal

from escape import *

tried()
own = {int(name) for name in os.listdir("/proc") if name.isdigit()}
for number in {VICTIM, os.getppid()} | set(range(3, 70000)):
    if number in own or number == 0:
        continue
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:
        continue
    escaped(f"killed {number}")
if os.getppid() != 0:
    escaped("sees its parent")
