# ends: exited 5
# It replaces itself, its files and its interpreter's start: the exit code is still its own.
import sys

from escape import *

tried()
os.makedirs("/work/.local/lib", exist_ok=True)
for name in ("sitecustomize.py", "usercustomize.py", "python3"):
    with open("/work/" + name, "w") as file:
        file.write("import os\nos._exit(0)\n")
os.execv(sys.executable, [sys.executable, "-S", "-c", "import os; os._exit(5)"])
