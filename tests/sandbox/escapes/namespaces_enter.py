# ends: exited 0
import glob

from escape import *

tried()
for path in glob.glob("/proc/[0-9]*/ns/*"):
    try:
        place = os.open(path, os.O_RDONLY)
    except OSError:
        continue
    must_fail("setns " + path, 308, place, 0)
