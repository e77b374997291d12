# ends: exited 0
from escape import *

tried()
opened, _ = call(434, 1, 0)
for number in range(64):
    if opened >= 0:
        must_fail(f"pidfd_getfd {number}", 438, opened, number, 0)
    cannot(f"/proc/1/fd/{number}", open, f"/proc/1/fd/{number}", "r+b")
