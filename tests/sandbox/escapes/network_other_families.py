# ends: exited 0
# The virtual machine's host (vsock) is behind no network name space.
import socket

from escape import *

tried()
for family in range(1, 46):
    if family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        continue
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        cannot(f"family {family}", socket.socket, family, kind)
cannot("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
