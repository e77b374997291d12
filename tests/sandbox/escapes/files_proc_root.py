# ends: exited 0
import glob

from escape import *

tried()
for link in glob.glob("/proc/*/root") + glob.glob("/proc/*/cwd") + glob.glob("/proc/*/task/*/root"):
    for prefix in (link, link + "/../../../.."):
        try:
            print(open(prefix + SECRET_FILE).read())
            escaped(prefix)
        except OSError:
            pass
