# ends: exited 0
# Who could write to the first process's memory could make it stay when the program outside is gone.
from escape import *

tried()
for name in ("mem", "maps", "environ", "auxv", "stack", "syscall"):
    path = "/proc/1/" + name
    cannot(path, lambda: open(path, "rb").read(1) or open("/nowhere"))
for name in ("fd/0", "fd/1", "cwd", "root", "exe", "ns/user", "ns/mnt"):
    cannot(name, os.readlink, "/proc/1/" + name)
cannot("written", os.open, "/proc/1/mem", os.O_RDWR)
