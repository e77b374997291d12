# ends: exited 0
from escape import *

ENOSYS = 38
CALLS = {
    "bpf": 321, "perf_event_open": 298, "init_module": 175, "finit_module": 313, "delete_module": 176,
    "kexec_load": 246, "kexec_file_load": 320, "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163,
    "quotactl": 179, "syslog": 103, "iopl": 172, "ioperm": 173, "settimeofday": 164, "clock_settime": 227,
    "adjtimex": 159, "clock_adjtime": 305, "sethostname": 170, "setdomainname": 171, "vhangup": 153,
    "modify_ldt": 154, "personality": 135, "lookup_dcookie": 212, "fanotify_init": 300, "move_pages": 279,
    "migrate_pages": 256, "mbind": 237, "process_madvise": 440, "sync": 162, "syncfs": 306, "seccomp": 317,
    "vmsplice": 278, "remap_file_pages": 216, "setxattr": 188, "ustat": 136, "sysfs": 139, "uselib": 134,
}  # fmt: skip
tried()
for name, number in CALLS.items():
    error = must_fail(name, number, 0, 0, 0, 0, 0, 0)
    if error != ENOSYS:
        escaped(f"{name} reaches the kernel: {error}")
