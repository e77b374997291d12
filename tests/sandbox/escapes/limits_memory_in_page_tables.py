# ends: memory 0
# Pages that are only read cost nothing but the tables in which they stand: 4 KB for each 2 MB that is touched.
import mmap
import os
import time

from escape import *

tried()
for _ in range(32):
    if os.fork() == 0:
        memory = mmap.mmap(-1, 12 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        for at in range(0, len(memory), 2 << 20):
            memory[at]
        time.sleep(60)
        os._exit(0)
time.sleep(60)
