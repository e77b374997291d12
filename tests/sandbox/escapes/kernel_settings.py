# ends: exited 0
from escape import *

tried()
for path in (
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger",
    "/proc/irq/default_smp_affinity",
):  # fmt: skip
    def write():
        with open(path, "r+b", buffering=0) as file:
            file.write(b"1")

    cannot(path, write)
for path in ("/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/dev/mem", "/dev/kmsg"):
    cannot(path, lambda: open(path, "rb").read(1) or open("/nowhere"))
