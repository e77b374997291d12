# ends: signal 25
import signal

from escape import *

tried()
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
with open("/work/file", "wb") as file:
    file.truncate(1 << 40)
escaped("a file of 1 TB")
