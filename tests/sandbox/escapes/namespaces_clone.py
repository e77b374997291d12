# ends: exited 0
from escape import *

tried()
for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x10000000 | 0x00020000):
    process, _ = call(56, flag | 17, 0, 0, 0, 0)
    if process == 0:
        os._exit(0)
    if process > 0:
        escaped(f"clone {flag:#x}")
arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
process, _ = call(435, ctypes.byref(arguments), 88)
if process == 0:
    os._exit(0)
if process > 0:
    escaped("clone3")
