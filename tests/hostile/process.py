"""A process of `watm serve` with two modules, and its resource usage."""

import contextlib
import os
import pathlib
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from watm_test_support import ports, watm_serve

from .attackers import GUEST, Attacker
from .neighbour import HOST, Echo, listen

# The limit of the hostile module.
DESCRIPTORS = 200
# The limit of `watm serve` on connections of all its modules: each connects to an upstream.
CONNECTIONS = 10_000
# Seconds.
DRAIN = 0.5
LONGEST_END = 30
SAMPLE = 0.02


@dataclass
class Taken:
    """The peak usage of a process."""

    rss_mib: float = 0
    descriptors: int = 0
    threads: int = 0
    end: float = 0
    """The seconds from the request to its end."""


@contextlib.contextmanager
def _unread(port: int) -> Iterator[None]:
    """Runs an application that accepts connections and datagrams, and reads nothing."""
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.bind((HOST, port))
        tcp.listen(4096)
        udp.bind((HOST, port))
        yield


@contextlib.contextmanager
def _watched(pid: int, taken: Taken) -> Iterator[None]:
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE):
            with contextlib.suppress(OSError, ValueError, KeyError):
                lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                said = dict(line.split(":", 1) for line in lines)
                taken.rss_mib = max(taken.rss_mib, int(said["VmRSS"].split()[0]) / 1024)
                taken.threads = max(taken.threads, int(said["Threads"]))
                taken.descriptors = max(taken.descriptors, _descriptors(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _descriptors(pid: int) -> int:
    """How many `pid` has. To list thousands takes a core for milliseconds, in which nobody else has it: since 6.2
    Linux gives their number without."""
    folder = pathlib.Path(f"/proc/{pid}/fd")
    return folder.stat().st_size or len(os.listdir(folder))


@contextlib.contextmanager
def _provoked(attacker: Attacker, seed: int | None, port: int, seconds: float) -> Iterator[None]:
    if attacker.provoke is None or seed is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=attacker.provoke, args=(seed, port, seconds, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run(attacker: Attacker, seed: int | None, seconds: float) -> tuple[Taken, Echo]:
    """Runs the module with this seed beside the neighbour. With None, another neighbour takes its
    place."""
    hostile, good, sink, answers = (ports.free_port() for _ in range(4))
    module, config, networks = GUEST, "good", ("udp",)
    if seed is not None:
        module, config, networks = attacker.module, attacker.config(seed), attacker.networks
    places = ", ".join(f'"{network}://{HOST}:{hostile}"' for network in networks)
    text = f"""
[drain]
timeout = {DRAIN}
[limits]
connections = {CONNECTIONS}
[[listener]]
name = "hostile"
module = "{module}"
config = "{config}"
addresses = [{places}]
workers = 1
upstream = "{HOST}:{sink}"
reach = ["*"]
[listener.limits]
memory-mib = {attacker.memory_mib}
descriptors = {DESCRIPTORS}
[[listener]]
name = "neighbour"
module = "{GUEST}"
config = "good"
addresses = ["udp://{HOST}:{good}"]
workers = 1
upstream = "{HOST}:{answers}"
"""
    taken = Taken()
    with (
        tempfile.TemporaryDirectory() as folder,
        _unread(sink),
        watm_serve.serving(pathlib.Path(folder), text) as serving,
        _watched(serving.process.pid, taken),
        _provoked(attacker, seed, hostile, seconds),
    ):
        echo = listen(good, answers, seconds)
        assert serving.process.poll() is None, f"it ended with {serving.process.returncode}:\n{serving.log()[-5000:]}"
        asked = time.monotonic()
        serving.process.terminate()
        serving.process.wait(LONGEST_END)
        taken.end = time.monotonic() - asked
    return taken, echo
