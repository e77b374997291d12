# ends: output 0
from escape import *

tried()
line = b"x" * 65536
for _ in range(1 << 14):
    os.write(1, line)
escaped("1 GB of output")
