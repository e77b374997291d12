# ends: exited 0
import resource

from escape import *

tried()
for name in ("CPU", "DATA", "AS", "NPROC", "NOFILE", "FSIZE", "CORE", "MEMLOCK", "MSGQUEUE", "NICE", "RTPRIO"):
    which = getattr(resource, "RLIMIT_" + name, 13 if name == "NICE" else 14)
    hard = resource.getrlimit(which)[1]
    if hard == resource.RLIM_INFINITY:
        escaped(f"{name} has no limit")
    try:
        resource.setrlimit(which, (hard + 1, hard + 1))
        escaped(name)
    except (OSError, ValueError):
        pass
cannot("niceness", os.nice, -10)
cannot("real time", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
