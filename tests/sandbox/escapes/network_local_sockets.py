# ends: exited 0
# Names without a file are a network's own; a host's file is not there.
import socket

from escape import *

tried()
for address in ("\0" + SOCKET, SECRET_FOLDER + "/socket", "/run/systemd/notify", "/var/run/docker.sock", "/run/dbus/system_bus_socket"):
    cannot(address, socket.socket(socket.AF_UNIX).connect, address)
