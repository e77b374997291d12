# ends: memory 0
# Bytes that wait in sockets are the kernel's: no process's size shows them.
import os
import socket
import time

from escape import *

tried()
for _ in range(32):
    if os.fork() == 0:
        held = []
        while True:
            try:
                pair = socket.socketpair()
            except OSError:
                break
            for each in pair:
                each.setblocking(False)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                try:
                    while True:
                        each.send(b"x" * 65536)
                except OSError:
                    pass
            held.append(pair)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
