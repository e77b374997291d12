# ends: exited 0
from escape import *

tried()
must_fail("mount", 165, b"none", b"/work", b"tmpfs", 0, 0)
must_fail("bind", 165, b"/usr", b"/work", 0, 4096, 0)
must_fail("remount for writing", 165, 0, b"/usr", 0, 32 | 4096, 0)
must_fail("umount", 166, b"/work", 2)
must_fail("fsopen", 430, b"tmpfs", 0)
must_fail("open_tree", 428, -100, b"/", 1)
must_fail("move_mount", 429, -100, b"/usr", -100, b"/work", 0)
must_fail("mount_setattr", 442, -100, b"/usr", 0, 0, 0)
