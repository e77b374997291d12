# ends: exited 0
from escape import *

tried()
cannot("shadow", open, "/etc/shadow")
users = open("/etc/passwd").read().splitlines()
if len(users) != 2:
    escaped(f"the machine's users: {users}")
for folder in ("/root", "/home", "/var", "/srv", "/mnt", "/boot", "/sys", "/run", "/opt"):
    cannot(folder, os.listdir, folder)
