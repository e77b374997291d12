# ends: exited 0
from escape import *

tried()
for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000, 0x80):
    must_fail(f"unshare {flag:#x}", 272, flag)
