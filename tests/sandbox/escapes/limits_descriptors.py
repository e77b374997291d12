# ends: exited 0
import socket

from escape import *

tried()
held = []
try:
    while len(held) < 100_000:
        held.append(socket.socketpair())
except OSError:
    pass
if len(held) > 128:
    escaped(f"{len(held)} pairs")
