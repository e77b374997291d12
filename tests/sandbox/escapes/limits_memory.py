# ends: exited 0
from escape import *

tried()
held = []
try:
    while len(held) < 100:
        held.append(bytearray(b"x") * (16 << 20))
    escaped("1.6 GB")
except MemoryError:
    pass
