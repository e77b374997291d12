# ends: exited 0
from escape import *

tried()
for path in ("/usr/bin/x", "/usr/lib/x", "/x", "/etc/x", "/etc/passwd", "/dev/x", "/bin/sh", "/proc/1/x"):
    cannot(path, open, path, "w")
for folder in ("/usr", "/etc", "/bin/", "/"):
    cannot(folder, os.mkdir, folder + "/made")
cannot("chmod", os.chmod, "/usr/bin/env", 0o777)
cannot("unlink", os.unlink, "/usr/bin/env")
cannot("rename", os.rename, "/work", "/usr/work")
