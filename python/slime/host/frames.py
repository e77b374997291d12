"""Frames of net/frame_channel.h over a connected socket, and the payload of plug-in frames.

    bytes  0..3    4..7           then, for each column      then            then, for each column
           H       C columns      kind u32, 0 u32, count u64  H bytes JSON    count numbers

Head and columns begin at multiples of 8. A column in the head is {"$column": k}.
"""

import fcntl
import json
import os
import select
import socket
import struct
import threading
from array import array
from collections import deque

__all__ = ["FrameSocket", "FrameError", "Columns", "encode", "decode", "frame_bytes", "CONFIGURE", "READY", "CALLS", "ANSWERS"]

CONFIGURE, READY, CALLS, ANSWERS, CANCEL, ASKS, REPLIES, BEAT = range(1, 9)

PROTOCOL = 1
LIMIT_BYTES = 4 << 30
MAX_COLUMNS = 1 << 20
_HEADER = struct.Struct("<4sIQ")
_COUNTS = struct.Struct("<II")
_COLUMN = struct.Struct("<IIQ")
_KINDS = {"i": 1, "q": 2, "f": 3, "d": 4, "B": 5}
_CODES = {kind: code for code, kind in _KINDS.items()}


class FrameError(RuntimeError):
    """What arrived is no frame."""


def _padding(size):
    return b"\0" * (-size % 8)


class Columns:
    """Gathers the arrays of a payload."""

    def __init__(self):
        self.arrays = []

    def add(self, numbers):
        """The head's word for `numbers`, an array of one of the five kinds."""
        self.arrays.append(numbers)
        return {"$column": len(self.arrays) - 1}


def _unusual(value):
    """Numbers and arrays of numpy and torch, enumerators; what else is no JSON is an error."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "value") and type(value).__module__ != "builtins":
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be told to the program")


def encode_json(head):
    """UTF-8. Throws TypeError for what JSON cannot say, ValueError for NaN and infinity."""
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_unusual)
    return text.encode("utf-8", "replace")


def encode(head, columns=()):
    """A payload of a head, as JSON or its bytes, and arrays."""
    body = head if isinstance(head, bytes) else encode_json(head)
    if not columns:
        return b"".join((_COUNTS.pack(len(body), 0), body, _padding(len(body))))
    parts = [_COUNTS.pack(len(body), len(columns))]
    parts += [_COLUMN.pack(_KINDS[numbers.typecode], 0, len(numbers)) for numbers in columns]
    parts += [body, _padding(len(body))]
    for numbers in columns:
        data = numbers.tobytes()
        parts += [data, _padding(len(data))]
    return b"".join(parts)


def decode(payload):
    """(head, arrays). Throws FrameError when the payload is not what its counts say."""
    try:
        head_bytes, num_columns = _COUNTS.unpack_from(payload)
        if num_columns > MAX_COLUMNS:
            raise FrameError(f"{num_columns} columns in a frame; there may be {MAX_COLUMNS}")
        begin = 8 + num_columns * _COLUMN.size
        table = [_COLUMN.unpack_from(payload, 8 + i * _COLUMN.size) for i in range(num_columns)]
        end = begin + head_bytes
        head = json.loads(payload[begin:end])
        arrays = []
        for kind, _, count in table:
            numbers = array(_CODES[kind])
            end += -end % 8
            size = count * numbers.itemsize
            if end + size > len(payload):
                raise FrameError(f"a column of {count} numbers ends behind its frame")
            numbers.frombytes(payload[end : end + size])
            end += size
            arrays.append(numbers)
    except (struct.error, ValueError, KeyError) as error:
        raise FrameError(f"a payload that cannot be read: {error}") from error
    return head, arrays


def frame_bytes(kind, payload):
    """A whole frame."""
    return _HEADER.pack(b"SLMF", kind, len(payload)) + payload


class FrameSocket:
    """One end of the channel. Any thread sends; one thread receives. Nothing here blocks but `wait`."""

    def __init__(self, connection, wants_writer=None):
        self._socket = connection
        self._socket.setblocking(False)
        self._lock = threading.Lock()
        self._unsent = deque()
        self._wants_writer = wants_writer or (lambda: None)
        self._arrived = bytearray()
        self._descriptors = deque()
        self._number, self._identity = connection.fileno(), os.fstat(connection.fileno()).st_ino
        self.is_open = True

    def fileno(self):
        return self._socket.fileno()

    def close(self):
        self._socket.close()

    def is_lost(self):
        """Whether somebody closed the descriptor, or put something else in its place."""
        try:
            return os.fstat(self._number).st_ino != self._identity
        except OSError:
            return True

    def send(self, kind, payload):
        """Sends what the socket takes now; the rest is sent by `flush`, which `wants_writer` is told to call."""
        self.send_bytes(frame_bytes(kind, payload))

    def send_bytes(self, frames):
        """The same with whole frames. True when all is sent."""
        with self._lock:
            had_rest = bool(self._unsent)
            self._unsent.append(memoryview(frames))
            if had_rest:
                return False
            if self._send_rest():
                return self.is_open
        self._wants_writer()
        return False

    def _send_rest(self):
        """True when all is sent."""
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent[0])
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                self._unsent.clear()
                self.is_open = False
                return True
            if sent == len(self._unsent[0]):
                self._unsent.popleft()
            else:
                self._unsent[0] = self._unsent[0][sent:]
        return True

    def flush(self):
        with self._lock:
            return self._send_rest()

    def drain(self):
        """Waits until all is sent, or the other end is gone."""
        while not self.flush():
            select.select([], [self._socket], [], 1.0)

    def receive(self):
        """Takes what has arrived: a list of (kind, payload). Empty when nothing whole is there."""
        while self.is_open:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(1 << 20, socket.CMSG_SPACE(64 * 4))
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                data, ancillary = b"", []
            for level, kind, rights in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    descriptors = array("i")
                    descriptors.frombytes(rights[: len(rights) - len(rights) % descriptors.itemsize])
                    for descriptor in descriptors:
                        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
                    self._descriptors.extend(descriptors)
            if not data:
                self.is_open = False
            self._arrived += data
            if len(data) < 1 << 20:
                break
        return self._whole_frames()

    def _whole_frames(self):
        frames, begin = [], 0
        while len(self._arrived) - begin >= _HEADER.size:
            magic, kind, length = _HEADER.unpack_from(self._arrived, begin)
            if magic != b"SLMF" or length > LIMIT_BYTES:
                raise FrameError("what arrived is no frame")
            end = begin + _HEADER.size + length
            if len(self._arrived) < end:
                break
            frames.append((kind, bytes(self._arrived[begin + _HEADER.size : end])))
            begin = end
        if begin:
            del self._arrived[:begin]
        return frames

    def take_descriptor(self):
        """The next descriptor that came along; the caller closes it."""
        if not self._descriptors:
            raise FrameError("memory was announced, and no descriptor came with it")
        return self._descriptors.popleft()

    def wait(self, timeout=None):
        """Until something arrives, sending meanwhile what is left to send."""
        with self._lock:
            has_rest = bool(self._unsent)
        _, writable, _ = select.select([self._socket], [self._socket] if has_rest else [], [], timeout)
        if writable:
            self.flush()


def open_descriptor(number):
    """The socket that the program gave as a descriptor, not to be inherited by anybody."""
    connection = socket.socket(fileno=number)
    os.set_inheritable(number, False)
    return connection
