# ends: exited 0
from escape import *

tried()
must_fail("setup", 425, 8, ctypes.create_string_buffer(120))
must_fail("enter", 426, 0, 1, 0, 0, 0, 0)
must_fail("register", 427, 0, 0, 0, 0)
