# ends: time 0
import signal

from escape import *

for number in (signal.SIGALRM, signal.SIGXCPU, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
tried()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            pass
while True:
    pass
