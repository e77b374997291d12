# ends: signal 11
# A core would be a file, or would go to a program outside that the system names for them.
import resource

from escape import *

try:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    escaped("cores")
except (OSError, ValueError):
    tried()
ctypes.memset(0, 1, 1)
