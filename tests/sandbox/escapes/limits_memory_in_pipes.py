# ends: memory 0
# Pipes of a process that were made larger than usual, each full.
import fcntl
import os
import time

from escape import *

tried()
F_SETPIPE_SZ = 1031
for _ in range(60):
    if os.fork() == 0:
        while True:
            try:
                reader, writer = os.pipe2(os.O_NONBLOCK)
            except OSError:
                break
            try:
                fcntl.fcntl(writer, F_SETPIPE_SZ, 1 << 20)
                escaped("a larger pipe")
            except OSError:
                pass
            try:
                while True:
                    os.write(writer, b"x" * 65536)
            except OSError:
                pass
        time.sleep(60)
        os._exit(0)
time.sleep(60)
