"""Messages between a tuner and its worker processes: a line of JSON, then bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any

Message = dict[str, Any]


def send(stream: IO[bytes], message: Message, blobs: Sequence[bytes] = ()) -> None:
    """Write a message. Raises OSError where nobody reads."""
    line = json.dumps([message, [len(b) for b in blobs]], separators=(",", ":"))
    stream.write(line.encode() + b"\n")
    for blob in blobs:
        stream.write(blob)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[Message, list[bytes]]:
    """Wait for a message. Raises EOFError at the end of the stream, within a message too."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    message, sizes = json.loads(line)
    blobs = [stream.read(size) for size in sizes]
    if [len(b) for b in blobs] != sizes:
        raise EOFError
    return message, blobs
