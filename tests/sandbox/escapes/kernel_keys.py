# ends: exited 0
from escape import *

tried()
must_fail("session keyring", 250, 0, -3, 1)
must_fail("join", 250, 1, 0)
must_fail("add_key", 248, b"user", b"name", b"x", 1, -4)
must_fail("request_key", 249, b"user", b"name", 0, -4)
