"""The kernel's TCP over some of the paths of `watm/netstack/tests/rough_paths.rs`: two namespaces with a TUN device
each, with the delays of those tests between them. The stack may take three times as long as the kernel. The kernel must
not beat the ideal sender of those tests.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from watm_test_support.spaces import ROOT, Space, interface_name, spaces

PROGRAM = ROOT / "watm" / "target" / "release" / "examples" / "rough_path"
SENDER, RECEIVER, PORT, MTU = "10.77.0.1", "10.77.0.2", 5000, 1420
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
# The largest ratio of the stack's time to the kernel's, and the smallest of the kernel's to the ideal.
MOST, LEAST = 3.0, 0.9
# The time limit of one case, in seconds.
LIMIT = 30

# The cases in which the stack is slowest compared with the ideal sender, and one of each other kind.
CASES = [
    ("steady", "trickle-then-bulk", 22),
    ("step up", "push", 4),
    ("step up", "trickle-then-bulk", 187),
    ("step down", "trickle-then-bulk", 302),
    ("alternating", "push", 2),
    ("alternating", "long", 6),
    ("jitter", "trickle", 2),
    ("jitter", "bulk", 69),
    ("jitter", "long", 33),
    ("stalls", "push", 248),
    ("stalls", "bulk", 6),
    ("reordering", "bulk", 283),
    ("reordering", "long", 1),
    ("duplicates", "push", 2),
    ("duplicates", "bulk", 291),
    ("narrow", "bulk", 56),
    ("narrow", "long", 27),
    ("narrow with jitter", "bulk", 276),
    ("narrow with jitter", "long", 6),
]


@pytest.mark.parametrize(("path", "shape", "seed"), CASES)
def test_the_stack_keeps_up_with_the_kernel(path: str, shape: str, seed: int) -> None:
    assert PROGRAM.exists(), f"{PROGRAM} is missing: make rough-path"
    case = [path, shape, str(seed)]
    described = subprocess.run([PROGRAM, "case", *case], capture_output=True, timeout=LIMIT, check=True)
    expected = json.loads(described.stdout)
    with spaces(2) as pair, devices(pair) as (sender, receiver):
        relay = subprocess.Popen([PROGRAM, "relay", *case], stdin=sender, stdout=receiver)
        try:
            kernel = transfer(pair, expected["writes"])
        finally:
            relay.terminate()
            relay.wait(LIMIT)
    print(f"{path}, {shape}: kernel {kernel:.3f} s, stack {expected['stack']:.3f} s, ideal {expected['ideal']:.3f} s")
    assert expected["stack"] <= MOST * kernel
    assert kernel >= LEAST * expected["ideal"]


@contextlib.contextmanager
def devices(pair: list[Space]) -> Iterator[list[int]]:
    """Creates a TUN device in each namespace, and yields their descriptors."""
    with contextlib.ExitStack() as stack:
        descriptors = []
        for space, address in zip(pair, (SENDER, RECEIVER), strict=True):
            name = interface_name()
            with inside(space):
                descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
            space.configure(name, [f"{address}/24"], MTU)
            space.run("sysctl", "-q", "-w", "net.ipv4.tcp_no_metrics_save=1")
            descriptors.append(descriptor)
        yield descriptors


@contextlib.contextmanager
def inside(space: Space) -> Iterator[None]:
    """Moves this thread into a namespace for the length of the block."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(pathlib.Path("/var/run/netns") / space.name, os.O_RDONLY)
    try:
        os.setns(there, os.CLONE_NEWNET)
        yield
    finally:
        os.setns(here, os.CLONE_NEWNET)
        os.close(there)
        os.close(here)


def transfer(pair: list[Space], writes: list[tuple[float, int]]) -> float:
    """Sends each write at its time. Returns the seconds until all data has arrived."""
    with inside(pair[1]):
        listener = socket.create_server((RECEIVER, PORT))
    with inside(pair[0]):
        sender = socket.socket()
    with listener, sender:
        sender.settimeout(LIMIT)
        listener.settimeout(LIMIT)
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        sender.connect((RECEIVER, PORT))
        begun = time.monotonic()
        receiver, _ = listener.accept()
        with receiver:
            receiver.settimeout(LIMIT)
            thread = threading.Thread(target=write, args=(sender, writes, begun))
            thread.start()
            left = sum(size for _, size in writes)
            while left:
                piece = receiver.recv(1 << 20)
                assert piece, f"the connection ended with {left} bytes missing"
                left -= len(piece)
            took = time.monotonic() - begun
            thread.join(LIMIT)
            return took


def write(sender: socket.socket, writes: list[tuple[float, int]], begun: float) -> None:
    """Writes each piece at its time after `begun`."""
    for at, size in writes:
        time.sleep(max(0.0, begun + at - time.monotonic()))
        sender.sendall(bytes(size))
