# ends: exited 0
import signal

from escape import *

tried()
if os.fork() == 0:
    signal.pause()
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
    try:
        os.kill(-1, number)
        os.kill(1, number)
    except OSError:
        pass
if not os.path.exists("/proc/1"):
    escaped("the first process is gone")
