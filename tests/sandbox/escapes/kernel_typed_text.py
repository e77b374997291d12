# ends: exited 0
# On a pipe the kernel itself would say ENOTTY: EPERM is the filter's word.
from escape import *

EPERM = 1
tried()
for name, request in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C), ("TIOCSETD", 0x5423), ("TIOCCONS", 0x541D)):
    for high in (0, 1 << 32):
        if must_fail(name, 16, 0, request | high, ctypes.create_string_buffer(b"x")) != EPERM:
            escaped(f"{name} reaches the kernel")
