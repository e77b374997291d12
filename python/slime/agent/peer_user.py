"""Whose process holds the other end of a connection on this machine, as the kernel says it."""

import os
import socket
import struct

__all__ = ["is_own_user", "user_of_peer"]

_SOCK_DIAG, _BY_FAMILY, _NO_COOKIE = 4, 20, 0xFFFFFFFF
_LOOPBACK = ("127.", "::1", "::ffff:127.")


def _ask_kernel(family, peer, own):
    """(whether the kernel answered, the user), by sock_diag(7)."""
    address = [socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (peer, own)]
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    request += struct.pack(">HH", peer[1], own[1]) + address[0] + address[1] + struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as asked:
            asked.settimeout(1)
            asked.send(struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, 1, 0, 0) + request)
            answer = asked.recv(4096)
    except OSError:
        return False, None
    if len(answer) < 16 + 72 or struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
        return False, None
    user, inode = struct.unpack_from("=II", answer, 16 + 64)
    return True, user if inode else None  # a closed one belongs to nobody, which reads as root


def _look_it_up(family, peer, own):
    """The same from /proc/net."""

    def name(end):
        raw = socket.inet_pton(family, end[0])
        return "".join(f"{word:08X}" for word in struct.unpack(f"={len(raw) // 4}I", raw)) + f":{end[1]:04X}"

    wanted = [name(peer), name(own)]
    with open("/proc/net/tcp" if family == socket.AF_INET else "/proc/net/tcp6") as file:
        for line in file:
            fields = line.split()
            if fields[1:3] == wanted:
                return int(fields[7]) if fields[9] != "0" else None
    return None


def user_of_peer(connection):
    """The user's number; None where the other end is on another machine, or closed, or the system does not say."""
    try:
        peer, own = connection.getpeername(), connection.getsockname()
        is_answered, user = _ask_kernel(connection.family, peer, own)
        return user if is_answered else _look_it_up(connection.family, peer, own)
    except (OSError, ValueError):
        return None


def is_own_user(connection):
    """False for a process of another user of this machine, root excepted, that has come over loopback."""
    try:
        if not connection.getsockname()[0].startswith(_LOOPBACK):
            return True
    except OSError:
        return False
    return user_of_peer(connection) in (0, os.geteuid())
