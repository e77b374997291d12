# ends: signal 9
# A child that ends well is not the command.
import signal

from escape import *

tried()
if os.fork() == 0:
    os.setsid()
    os._exit(0)
os.wait()
os.kill(os.getpid(), signal.SIGKILL)
