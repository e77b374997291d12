# ends: exited 0
# Memory without a mapping: memory files, System V segments, message queues.
from escape import *

tried()
must_fail("memfd_create", 319, b"x", 0)
must_fail("memfd_secret", 447, 0)
must_fail("shmget", 29, 0, 1 << 20, 0o1600)
must_fail("msgget", 68, 0, 0o1600)
must_fail("semget", 64, 0, 10, 0o1600)
must_fail("mq_open", 240, b"x", 0o102, 0o600, 0)
must_fail("userfaultfd", 323, 0)
