# ends: exited 0
# The test listens on this machine's loopback, and counts who comes.
import socket

from escape import *

tried()
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "0.0.0.0")):
    def connect():
        with socket.socket(family) as link:
            link.settimeout(2)
            link.connect((address, PORT))

    cannot(address, connect)
