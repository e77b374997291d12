# ends: memory 0
# Each stays below the limit of one process; together they are far above.
import time

from escape import *

tried()
for _ in range(16):
    if os.fork() == 0:
        held = bytearray(b"x") * (100 << 20)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
