# ends: exited 0
import threading
import time

from escape import *

tried()
threading.stack_size(65536)
threads = 0
try:
    while threads < 1000:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        threads += 1
except RuntimeError:
    pass
if threads > 64:
    escaped(f"{threads} threads")
os._exit(0)
