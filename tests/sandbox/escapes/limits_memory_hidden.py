# ends: memory 0
# Pages of a shared mapping stay when they are unmapped for the moment: no process's size shows them.
import mmap
import time

from escape import *

tried()
held = []
for _ in range(16):
    memory = mmap.mmap(-1, 64 << 20)
    for at in range(0, len(memory), 4096):
        memory[at] = 1
    memory.madvise(mmap.MADV_DONTNEED)
    held.append(memory)
escaped("1 GB")
