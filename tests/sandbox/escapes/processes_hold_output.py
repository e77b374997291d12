# ends: exited 0
# A child that keeps the output open must not keep the command from having ended.
import time

from escape import *

tried()
if os.fork() == 0:
    os.setsid()
    time.sleep(3600)
    os._exit(0)
