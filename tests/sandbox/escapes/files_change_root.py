# ends: exited 0
from escape import *

tried()
os.mkdir("/work/root")
cannot("chroot", os.chroot, "/work/root")
must_fail("pivot_root", 155, b"/work", b"/work/root")
