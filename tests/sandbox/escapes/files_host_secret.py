# ends: exited 0
from escape import *

tried()
cannot("the secret is readable", lambda: print(open(SECRET_FILE).read()))
cannot("its folder is there", lambda: print(os.listdir(SECRET_FOLDER)))
