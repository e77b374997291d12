# ends: exited 0
import socket

from escape import *

tried()
for address in ("192.0.2.1", "8.8.8.8", "10.0.0.1", "169.254.169.254", "172.17.0.1", "192.168.0.1"):
    def send():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            link.sendto(b"x", (address, 53))

    cannot(address, send)
cannot("names", socket.getaddrinfo, "example.com", 80)
interfaces = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
if interfaces != ["lo"]:
    escaped(f"interfaces {interfaces}")
