# ends: exited 0
from escape import *

tried()
written = 0
for folder in ("/work", "/tmp", "/dev/shm", "/work/.tmp"):
    for number in range(64):
        try:
            with open(f"{folder}/{number}", "wb", buffering=0) as file:
                for _ in range(8):
                    written += file.write(bytes(1 << 20))
        except OSError:
            break
if written > 32 << 20:
    escaped(f"{written} bytes")
