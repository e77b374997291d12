# ends: files 0
from escape import *

tried()
for number in range(200_000):
    try:
        os.makedirs(f"/work/{number // 1000}", exist_ok=True)
        open(f"/work/{number // 1000}/{number}", "w").close()
    except OSError:
        pass
escaped("200,000 files")
