# ends: exited 0
# A file system's inode 2 is its root: whoever may open by handle is out of every mount.
import struct

from escape import *

tried()
handle = ctypes.create_string_buffer(struct.pack("=IiQI", 8, 1, 2, 0) + bytes(112))
folder = os.open("/usr", os.O_RDONLY)
must_fail("open_by_handle_at", 304, folder, handle, 0)
mount = ctypes.c_int()
must_fail("name_to_handle_at", 303, folder, b"bin", handle, ctypes.byref(mount), 0)
