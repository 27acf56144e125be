"""Shapes of traffic over one TCP connection: `shapes.py serve HOST PORT`, `shapes.py run HOST PORT SHAPE up|down`.

The client prints "ready" when the connection is warm, waits for a line, and prints a line of JSON:
the seconds until the last byte arrived, and the longest time of a message in milliseconds. Both
ends are on one machine and share its clock.
"""

import json
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

# The header of each message: its length, and the time when it was due.
HEADER = struct.Struct("<Iq")
LARGEST = 1 << 16
# The number of round trips before the shape begins.
WARM = 20
KB, MB = 1000, 1_000_000


def trickle() -> Iterator[tuple[float, int]]:
    """Yields small messages, each with its time in seconds and its size."""
    return ((number * 0.02, 100) for number in range(50))


def push() -> Iterator[tuple[float, int]]:
    """Yields bursts of one to five messages."""
    chance = random.Random(1)
    for burst in range(40):
        for _ in range(chance.randint(1, 5)):
            yield burst * 0.025, chance.randint(20, 400)


def bulk() -> Iterator[tuple[float, int]]:
    return ((0, LARGEST) for _ in range(3 * MB // LARGEST))


def trickle_then_bulk() -> Iterator[tuple[float, int]]:
    """Yields three small messages, and 200 kB after a pause."""
    yield from ((number * 0.01, 100) for number in range(3))
    yield from ((0.5, 50 * KB) for _ in range(4))


SHAPES = {shape.__name__.replace("_", "-"): shape for shape in (trickle, push, bulk, trickle_then_bulk)}


def serve(host: str, port: int) -> None:
    with socket.create_server((host, port)) as listener:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    prepare(connection)
    with connection, connection.makefile("rb") as stream:
        for _ in range(WARM):
            connection.sendall(stream.read(1))
        shape, direction = stream.readline().decode().split()
        if direction == "up":
            connection.sendall(json.dumps(collect(stream)).encode())
        else:
            perform(connection, shape)


def prepare(connection: socket.socket) -> None:
    """Disables Nagle's algorithm, and selects the default congestion control of Linux."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")


def run(host: str, port: int, shape: str, direction: str) -> dict[str, float]:
    with socket.create_connection((host, port)) as connection, connection.makefile("rb") as stream:
        prepare(connection)
        for _ in range(WARM):
            connection.sendall(b"w")
            stream.read(1)
        print("ready", flush=True)
        sys.stdin.readline()
        begun = time.monotonic_ns()
        connection.sendall(f"{shape} {direction}\n".encode())
        if direction == "up":
            perform(connection, shape)
            collected = json.load(stream)
        else:
            collected = collect(stream)
    expected = sum(size for _, size in SHAPES[shape]())
    assert collected["bytes"] == expected, f"{collected['bytes']} bytes of {expected}"
    return {"seconds": (collected["ended"] - begun) / 1e9, "slowest_ms": collected["slowest"] / 1e6}


def perform(connection: socket.socket, shape: str) -> None:
    """Sends each message at its time, and closes this direction."""
    begun = time.monotonic_ns()
    for due, size in SHAPES[shape]():
        at = begun + round(due * 1e9)
        time.sleep(max(0, at - time.monotonic_ns()) / 1e9)
        connection.sendall(HEADER.pack(size, at) + bytes(size))
    connection.shutdown(socket.SHUT_WR)


def collect(stream) -> dict[str, int]:
    """Reads messages to the end. Times are in nanoseconds."""
    read = slowest = ended = 0
    while header := stream.read(HEADER.size):
        size, at = HEADER.unpack(header)
        read += len(stream.read(size))
        ended = time.monotonic_ns()
        slowest = max(slowest, ended - at)
    return {"bytes": read, "slowest": slowest, "ended": ended}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        print(json.dumps(run(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])), flush=True)
