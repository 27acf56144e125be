"""Runs the workloads: who takes turns with whom, on which CPUs, and what it cost."""

import contextlib
import itertools
import json
import os
import pathlib
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import environment
from workloads import Workload

# Each kind of server.py, and the Python package that it needs.
SERVERS = {
    "native": {"mitmproxy_rs"},
    "watm": {"mitmproxy_watm"},
    "watm-own-aead": {"mitmproxy_watm"},
    "plain": set(),
}
PLACEMENTS = ["pinned", "unpinned"]

# The inner destination: nothing answers there but the server's handlers.
DESTINATION = "10.9.8.7"
# Seconds for one workload; the slowest takes a few.
_LIMIT = 120
_WARM_UP = Workload("", "echo", 7, {"messages": 50, "size": 1000}, "", "")


@dataclass
class Plan:
    """What to run."""

    servers: list[str]
    placements: list[str]
    workloads: dict[str, Workload]
    repetitions: int

    def run(self) -> Iterator[dict]:
        """One sample a workload, server, placement and repetition, as they come."""
        for repetition, placement in itertools.product(range(self.repetitions), self.placements):
            # Nobody is always first, while the caches are warm or the CPU cool.
            turn = repetition % len(self.servers)
            for server in self.servers[turn:] + self.servers[:turn]:
                labels = {"server": server, "placement": placement, "repetition": repetition}
                for sample in _round(server, placement, self.workloads):
                    yield labels | sample


def _round(kind: str, placement: str, workloads: dict[str, Workload]) -> Iterator[dict]:
    """All the workloads against one server process, from one client process."""
    cpus = environment.cpus()
    server_cpus, client_cpus = ({cpus[0]}, {cpus[1]}) if placement == "pinned" else (set(cpus), set(cpus))
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(_Server(kind, server_cpus))
            client = stack.enter_context(_Client(server.reach, client_cpus))
            # The handshake and the first allocations are nobody's business.
            client.run(_WARM_UP)
        except _Failed as failed:
            yield {"workload": "start", "error": str(failed)}
            return
        for name, workload in workloads.items():
            sample = {"workload": name, "load": os.getloadavg()[0]}
            cpu, client_cpu = server.cpu_seconds(), client.cpu_seconds()
            try:
                answer = client.run(workload)
            except _Failed as failed:
                yield sample | {"error": str(failed)}
                continue
            yield sample | {
                "answer": answer,
                "server_cpu_seconds": server.cpu_seconds() - cpu,
                "client_cpu_seconds": client.cpu_seconds() - client_cpu,
                "server_rss_mb": server.rss_mb(),
                "counters": server.counters(),
            }


class _Failed(Exception):
    pass


class _Process:
    """A child that talks in lines of JSON and ends with its input."""

    def __init__(self, command: list[str], cpus: set[int]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def cpu_seconds(self) -> float:
        # The kernel's CPU clock of another process, see clock_getcpuclockid(3).
        return time.clock_gettime((~self._process.pid << 3) | 2)

    def _say(self, text: str) -> None:
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        except OSError as broken:
            raise _Failed(f"{self._process.args[0]} has ended") from broken

    def _hear(self, seconds: float) -> dict:
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not ready:
            raise _Failed(f"{self._process.args[0]} said nothing for {seconds:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise _Failed(f"{self._process.args[0]} has ended")
        return json.loads(line)


class _Server(_Process):
    """A process of server.py."""

    def __init__(self, kind: str, cpus: set[int]) -> None:
        program = pathlib.Path(__file__).with_name("server.py")
        super().__init__([sys.executable, str(program), kind], cpus)

    def __enter__(self) -> Self:
        # A module that is not in the cache is compiled first.
        self.reach = self._hear(60)
        return self

    def rss_mb(self) -> float:
        for line in pathlib.Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1000
        return 0.0

    def counters(self) -> dict:
        self._say("")
        return self._hear(10)


class _Client(_Process):
    """A process of tests/wgclient: one tunnel for all workloads."""

    def __init__(self, reach: dict, cpus: set[int]) -> None:
        flags = ["--direct"]
        if not reach["direct"]:
            flags = [
                f"--{name}={reach[name.replace('-', '_')]}" for name in ("server", "private-key", "peer-public-key")
            ]
        super().__init__([str(environment.CLIENT), "serve", *flags], cpus)
        self._reach = reach
        self._hear(10)  # that it is ready

    def run(self, workload: Workload) -> dict:
        to = f"{DESTINATION}:{workload.port}"
        if self._reach["direct"]:
            network = "udp" if workload.action.startswith("udp") else "tcp"
            to = f"127.0.0.1:{self._reach['ports'][f'{network}{workload.port}']}"
        request = {"id": 1, "do": workload.action, "to": to, "timeout_ms": _LIMIT * 1000, **workload.options}
        self._say(json.dumps(request))
        reply = self._hear(_LIMIT + 10)
        if "error" in reply:
            raise _Failed(reply["error"])
        return reply["ok"]
