# ends: exited 0
import stat

from escape import *

tried()
for name, major, minor in (("disk", 254, 0), ("sda", 8, 0), ("loop", 7, 0)):
    cannot(name, os.mknod, "/work/" + name, 0o666 | stat.S_IFBLK, os.makedev(major, minor))
cannot("memory", os.mknod, "/work/mem", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
found = set(os.listdir("/dev")) - {"null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr", "shm"}
if found:
    escaped(f"devices: {found}")
