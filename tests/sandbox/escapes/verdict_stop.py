# ends: time 0
# Stopped is not ended.
import signal

from escape import *

tried()
os.kill(os.getpid(), signal.SIGSTOP)
