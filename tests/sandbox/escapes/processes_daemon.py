# ends: exited 0
# Stays behind with every signal ignored, in a session of its own; the test looks for it.
import signal
import time

from escape import *

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        for number in range(3):
            os.close(number)
        while True:
            time.sleep(1)
    os._exit(0)
os.wait()
tried()
