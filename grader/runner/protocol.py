"""How judge and runner speak over a socket: a length prefix, a JSON header, raw tensor bytes.

Both sides import this file, and it imports nothing but the standard library. Nothing here decides
what a message means: the judge checks every header it receives (`grader/judge/replies.py`).
"""

import json
import socket
import struct
import time
from collections.abc import Iterable
from typing import Any

PREFIX = struct.Struct("<IQ")  # bytes of the header, bytes of the payload
HEADER_LIMIT_BYTES = 256 * 1024


class ConversationError(Exception):
    """The other side can no longer be spoken with; the subclass says why."""


class Closed(ConversationError):
    """The other side went away, between messages or in the middle of one."""


class Late(ConversationError):
    """The deadline passed before the whole message was through."""


class Malformed(ConversationError):
    """What arrived is not a message, or is larger than allowed."""


def send(sock: socket.socket, header: object, payload: Iterable[memoryview] = (), deadline: float = 0) -> None:
    """Write one message. `deadline` is a reading of `time.monotonic()`, or 0; raises `Closed` or `Late`."""
    encoded = json.dumps(header, allow_nan=False).encode()
    parts = [part.cast("B") for part in payload if part.nbytes]
    prefix = PREFIX.pack(len(encoded), sum(part.nbytes for part in parts))
    try:
        for part in (memoryview(prefix + encoded), *parts):
            _limit_wait(sock, deadline)
            sock.sendall(part)
    except TimeoutError:
        raise Late("the message was not read in time") from None
    except OSError as error:
        raise Closed(str(error)) from None


def receive(sock: socket.socket, payload_limit: int, deadline: float = 0) -> tuple[Any, bytearray]:
    """Read one message: its header, parsed from JSON, and its payload.

    Sizes are compared with the limits before any of it is read. Raises `Closed`, `Late` or `Malformed`.
    """
    header_bytes, payload_bytes = PREFIX.unpack(_read(sock, PREFIX.size, deadline))
    if header_bytes > HEADER_LIMIT_BYTES or payload_bytes > payload_limit:
        raise Malformed(f"a message of {header_bytes} + {payload_bytes} bytes, more than is allowed")
    encoded = _read(sock, header_bytes, deadline)
    try:
        header = json.loads(encoded)
    except (ValueError, RecursionError):
        raise Malformed("a message whose header is not JSON") from None
    return header, _read(sock, payload_bytes, deadline)


def _read(sock: socket.socket, count: int, deadline: float) -> bytearray:
    buffer = bytearray(count)
    rest = memoryview(buffer)
    while rest:
        _limit_wait(sock, deadline)
        try:
            received = sock.recv_into(rest)
        except TimeoutError:
            raise Late("no complete message in time") from None
        except OSError as error:
            raise Closed(str(error)) from None
        if received == 0:
            raise Closed("the other side closed the connection")
        rest = rest[received:]
    return buffer


def _limit_wait(sock: socket.socket, deadline: float) -> None:
    remaining = deadline - time.monotonic()
    if deadline and remaining <= 0:
        raise Late("the deadline has passed")
    sock.settimeout(remaining if deadline else None)
