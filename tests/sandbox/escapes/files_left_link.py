# ends: exited 0
# The test reads /work/answer afterwards, as whoever wants a program's file would.
from escape import *

os.symlink(SECRET_FILE, "/work/answer")
tried()
