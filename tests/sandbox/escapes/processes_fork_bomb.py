# ends: exited 0
# Bounded, as its siblings are: where the limit is broken the test fails and the machine lives.
import time

from escape import *

tried()
children = 0
for _ in range(500):
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        children += 1
    except OSError:
        break
if children > 64:
    escaped(f"{children} processes")
