# ends: exited 0
from escape import *

tried()
must_fail("attach", 101, 16, 1, 0, 0)
must_fail("seize", 101, 0x4206, 1, 0, 0)
must_fail("traceme", 101, 0, 0, 0, 0)
must_fail("process_vm_writev", 311, 1, 0, 0, 0, 0, 0)
must_fail("process_vm_readv", 310, 1, 0, 0, 0, 0, 0)
must_fail("kcmp", 312, 1, os.getpid(), 0, 0, 0)
