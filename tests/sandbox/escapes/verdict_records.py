# ends: exited 3
# The record that says how a command ended, written to whatever can be written to.
import glob
import struct

from escape import *

tried()
record = struct.pack("=iiiiq", 0, 0, 0, 0, 0)
for number in range(3, 1024):
    try:
        os.write(number, record)
        escaped(f"descriptor {number}")
    except OSError:
        pass
for path in glob.glob("/proc/[0-9]*/fd/*"):
    if path.split("/")[2] in (str(os.getpid()), "self"):
        continue
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(record)
        escaped(path)
    except OSError:
        pass
os._exit(3)
