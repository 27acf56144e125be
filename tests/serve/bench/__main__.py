"""`make bench-workers`: the gain of a second worker of `watm serve` for the peers of one WireGuard
server.

Several wgclients, each a peer, load a server in front of an application that counts. The clients'
keys are such that each worker has the same number of them. On two processors the
server shares both with the load, so each worker is limited to a part of one.
"""

import argparse
import base64
import contextlib
import functools
import json
import operator
import pathlib
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support import machine
from watm_test_support.ports import free_port
from watm_test_support.quota import limited, preferred, used
from watm_test_support.repository import MODULES, ROOT, WATM
from watm_test_support.tunnels import Peer, config
from watm_test_support.wgclient import BINARY

from .application import HOST, application

# Seconds until a program must be ready.
LIMIT = 20
# Seconds of traffic before a measurement.
WARM = 1
# The period of the quota in microseconds. A worker that has used its quota rests for the remainder,
# and its socket must hold what arrives meanwhile.
PERIOD = 4000
# An inner destination. No host has this address: the server connects to the application instead.
INSIDE = "10.9.8.7:7"


@dataclass(frozen=True)
class Load:
    """The traffic of a row: what the clients do, the service that answers, and the unit of its count."""

    action: tuple[str, ...]
    service: str
    unit: str
    size: float = 1


LOADS = {
    "bulk up": Load(("bulk-up", "--bytes", str(1 << 50)), "sink", "MB/s", 1e6),
    "bulk down": Load(("bulk-down", "--bytes", str(1 << 50)), "source", "MB/s", 1e6),
    "UDP echo, 32 in flight": Load(("udp-echo", "--messages", str(1 << 24), "--window", "32"), "echo", "messages/s"),
    "connect, echo, close, 10 at a time": Load(
        ("connect", "--count", str(1 << 24), "--parallel", "10"), "echo", "connections/s"
    ),
}


@dataclass(frozen=True)
class Sample:
    """The rate, and the part of their quotas that the workers used."""

    rate: float
    used: float


class Bench:
    """The server's address and keys, and its peers."""

    def __init__(self, folder: pathlib.Path, options: argparse.Namespace) -> None:
        self._folder, self._options = folder, options
        self._server = genkey()
        self._port = free_port()
        most = max(options.workers)
        keys = [key_of_worker(number % most, most) for number in range(options.peers)]
        self._peers = [Peer([f"10.0.0.{number}"], private_key=key) for number, key in enumerate(keys, 1)]
        (folder / "server.conf").write_text(config(self._server, self._peers))

    def take(self, load: Load, workers: int) -> Sample:
        """Measures this load with a new server."""
        to, seconds, share = free_port(), self._options.seconds, self._options.share
        with application(to, load.service) as count, self._serving(to, workers) as session, self._clients(load):
            with contextlib.ExitStack() as stack:
                if share:
                    stack.enter_context(limited(session, workers, share, lambda: time.sleep(WARM), PERIOD))
                time.sleep(WARM)
                before, spent, began = count.value, used(session), time.monotonic()
                time.sleep(seconds)
                taken, spent, elapsed = count.value - before, used(session) - spent, time.monotonic() - began
        return Sample(taken / load.size / elapsed, spent / elapsed / workers / ((share or 100) / 100))

    @contextlib.contextmanager
    def _serving(self, to: int, workers: int) -> Iterator[int]:
        """Runs the server. Yields its process id, which is that of its session."""
        command = [WATM, "serve", "--unsealed", MODULES / "wireguard.wasm", "--listen", f"udp://{HOST}:{self._port}"]
        command += ["--upstream", f"{HOST}:{to}", "--config", self._folder / "server.conf"]
        command += ["--workers", str(workers), "--log", "error", "--drain-timeout", "0"]
        log = self._folder / "server.log"
        with open(log, "w") as to_log:
            process = subprocess.Popen(command, stderr=to_log, start_new_session=True)
        try:
            end = time.monotonic() + LIMIT
            while "listening on " not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, f"watm serve does not listen: {log.read_text()}"
                time.sleep(0.02)
            yield process.pid
            assert process.poll() is None, log.read_text()
        finally:
            _end(process, signal.SIGTERM)

    @contextlib.contextmanager
    def _clients(self, load: Load) -> Iterator[None]:
        """Runs the clients, which must not end before the block."""
        running = []
        try:
            for peer in self._peers:
                command = [BINARY, *load.action, "--to", INSIDE, "--server", f"{HOST}:{self._port}"]
                command += ["--private-key", peer.private_key, "--peer-public-key", pubkey(self._server)]
                command += ["--address", ",".join(peer.addresses), "--timeout", "0"]
                running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            yield
            assert [client.poll() for client in running] == [None] * len(running), "a client has ended"
        finally:
            for client in running:
                _end(client, signal.SIGKILL)


def key_of_worker(number: int, workers: int) -> str:
    """Returns a private key of a peer that this worker has (`watm/wireguard/src/home.rs`)."""
    while True:
        words = struct.unpack("<4Q", base64.b64decode(pubkey(key := genkey())))
        if functools.reduce(operator.xor, words) % workers == number:
            return key


def _end(process: subprocess.Popen, how: signal.Signals) -> None:
    process.send_signal(how)
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-workers", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run: everything once, for a second")
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="each has every number of workers once (%(default)s)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="how many, the first to compare with (1 and 2)")
    parser.add_argument("--peers", type=int, default=4, help="clients at once, a multiple of the workers (%(default)s)")
    parser.add_argument("--share", type=int, default=25, help="of a processor for each worker, in %%; 0: no limit (%(default)s)")
    parser.add_argument("--loads", default=";".join(LOADS), help="which of %(default)s, separated by semicolons")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "bench-workers.json")
    options = parser.parse_args()
    if options.peers % max(options.workers):
        parser.error("--peers must be a multiple of the most workers")
    if options.quick:
        options.seconds, options.rounds = 1, 1
    loads = options.loads.split(";")
    described = machine.described()
    samples: dict[str, dict[int, list[Sample]]] = {load: defaultdict(list) for load in loads}
    with tempfile.TemporaryDirectory() as folder, preferred() if options.share else contextlib.nullcontext():
        bench = Bench(pathlib.Path(folder), options)
        for number in range(options.rounds):
            for load in loads:
                for workers in machine.turns(options.workers, number):
                    sample = bench.take(LOADS[load], workers)
                    samples[load][workers].append(sample)
                    shown = f"{load}, {workers}: {sample.rate:.0f} {LOADS[load].unit} ({sample.used:.0%} used)"
                    print(shown, file=sys.stderr, flush=True)
    print(table(samples, options.workers))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    flat = {load: {workers: [vars(s) for s in taken] for workers, taken in by.items()} for load, by in samples.items()}
    every = {"environment": described, "peers": options.peers, "share": options.share, "samples": flat}
    options.output.write_text(json.dumps(every, indent=1) + "\n")
    print(f"every sample: {options.output}")
    return 0


def table(samples: dict[str, dict[int, list[Sample]]], workers: list[int]) -> str:
    """Formats medians, the part of the quotas that was used, and ratios of samples of one round."""
    title = [f"{count} worker{'s' * (count > 1)} (used)" for count in workers]
    lines = ["", f"{'':36}" + "".join(f"{cell:>32}" for cell in [*title, "ratio"])]
    for load, by in samples.items():
        cells = [
            f"{machine.spread([s.rate for s in by[count]], 0)} ({statistics.median(s.used for s in by[count]):.0%})"
            for count in workers
        ]
        first, last = by[workers[0]], by[workers[-1]]
        cells.append(machine.spread([many.rate / one.rate for one, many in zip(first, last, strict=True)], 2))
        lines.append(f"{load + ', ' + LOADS[load].unit:36}" + "".join(f"{cell:>32}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
