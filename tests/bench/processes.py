"""The programs under test and the clients, each a process that exchanges lines of JSON."""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import Self

from watm_test_support.ports import free_port

from . import environment, networks

# Seconds for one answer. The slowest, fifteen handshakes with the native server, take half of it.
LIMIT = 120
# The inner destination: only the server's handlers answer there.
DESTINATION = "10.9.8.7"

HERE = pathlib.Path(__file__).parent


class Failed(Exception):
    """A program ended, did not answer, or reported an error."""


class Process:
    """A child process on some of the CPUs. It ends with its input, or with `ending`."""

    ending: signal.Signals | None = None

    def __init__(self, command: list[str | pathlib.Path], cpus: set[int]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self.ending:
            self._process.send_signal(self.ending)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def cpu_seconds(self) -> float:
        """The CPU time used so far by all its threads."""
        # The kernel's CPU clock of another process, see clock_getcpuclockid(3).
        return time.clock_gettime((~self.pid << 3) | 2)

    def rss_mb(self) -> float:
        """Resident memory in millions of bytes."""
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        return 0.0

    def say(self, text: str) -> None:
        """Writes a line to its input."""
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        except OSError as broken:
            raise Failed(f"{self._process.args[0]} has ended") from broken

    def hear(self, seconds: float) -> dict:
        """Returns the next line of its output, parsed as JSON."""
        return json.loads(self.hear_line(seconds))

    def hear_line(self, seconds: float) -> str:
        """Returns the next line of its output."""
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not ready:
            raise Failed(f"{self._process.args[0]} said nothing for {seconds:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"{self._process.args[0]} has ended")
        return line


class Server(Process):
    """A process of server.py with one kind of server."""

    def __init__(self, kind: str, cpus: set[int]) -> None:
        super().__init__(self.command(kind), cpus)

    def command(self, *words: str) -> list[str]:
        """Returns the command for a kind of server."""
        return [sys.executable, "-m", "tests.bench.server", *words]

    def __enter__(self) -> Self:
        # A module that is not in the cache is compiled first.
        self.reach = self.hear(60)
        return self

    def counters(self) -> dict:
        """Returns its own counters, under their names in this kind."""
        self.say("")
        return self.hear(10)


class Device(Server):
    """A process of server.py with a device, in a network of its own."""

    def __init__(self, kind: str, cpus: set[int], mtu: int) -> None:
        self._mtu = mtu
        super().__init__(kind, cpus)

    def command(self, *words: str) -> list[str]:
        """Returns the command that also makes the network."""
        return [*networks.apart(), *super().command(f"tun-{words[0]}", str(self._mtu))]


class Echo(Process):
    """A program that takes a configuration and echoes every flow: the price of the sandbox."""

    ending = signal.SIGTERM

    def __init__(self, kind: str, cpus: set[int]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        server, client = environment.key_pair(), environment.key_pair()
        config = pathlib.Path(self._folder.name) / "wg0.conf"
        config.write_text(
            f"[Interface]\nPrivateKey = {server.private}\n"
            f"[Peer]\nPublicKey = {client.public}\nAllowedIPs = 0.0.0.0/0, ::/0\n"
        )
        commands = {
            "crate": [environment.CRATE, "--listen", "127.0.0.1:0", "--config", config],
            "watm": [environment.HOST, "--unsealed", environment.MODULE, config, "127.0.0.1:0"],
        }
        self.reach = {"direct": False, "private_key": client.private, "peer_public_key": server.public}
        super().__init__(commands[kind], cpus)

    def __enter__(self) -> Self:
        while True:
            line = self.hear_line(60)
            if "listening" in line:
                self.reach["server"] = f"127.0.0.1:{json.loads(line)['port']}"
                return self
            if line.startswith("serving on "):
                self.reach["server"] = line.split()[-1]
                return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._folder.cleanup()


class Mitmdump(Process):
    """mitmdump in one of the two modes, with an addon that answers every request."""

    ending = signal.SIGTERM

    def __init__(self, kind: str, cpus: set[int]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        server, client = environment.key_pair(), environment.key_pair()
        keys = pathlib.Path(self._folder.name) / "wireguard.conf"
        keys.write_text(json.dumps({"server_key": server.private, "client_key": client.private}))
        keys.chmod(0o600)
        port = free_port()
        program, mode = {
            "native": ("mitmdump", f"wireguard:{keys}@127.0.0.1:{port}"),
            "watm": ("mitmdump-watm", f"watm:wireguard?keys={keys}@127.0.0.1:{port}"),
        }[kind]
        self.reach = {
            "direct": False,
            "server": f"127.0.0.1:{port}",
            "private_key": client.private,
            "peer_public_key": server.public,
        }
        options = ["--mode", mode, *_answering(self._folder.name), *_REPORTING]
        super().__init__([_program(program), *options], cpus)

    def __enter__(self) -> Self:
        self.hear(60)
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._folder.cleanup()


class Client(Process):
    """A process of tests/wgclient with one tunnel for all its actions."""

    def __init__(self, reach: dict, cpus: set[int], *flags: str) -> None:
        super().__init__(self.command(reach, *flags), cpus)
        self._reach = reach

    def command(self, reach: dict, *flags: str) -> list[str | pathlib.Path]:
        """Returns the command for a client, in the network of the server if it has one."""
        inside = networks.beside(reach["network"]) if "network" in reach else []
        return [*inside, environment.CLIENT, "serve", *_tunnel(reach), *flags]

    def __enter__(self) -> Self:
        self.hear(10)  # that it is ready
        return self

    def run(self, action: str, port: int | None = None, **options: object) -> dict:
        """Returns the result of an action, against the service at a port if the action needs one."""
        if port is not None:
            to = f"{DESTINATION}:{port}"
            if "ports" in self._reach:
                network = "udp" if action.startswith("udp") else "tcp"
                to = f"127.0.0.1:{self._reach['ports'][f'{network}{port}']}"
            options["to"] = to
        self.say(json.dumps({"id": 1, "do": action, "timeout_ms": LIMIT * 1000, **options}))
        reply = self.hear(LIMIT + 10)
        if "error" in reply:
            raise Failed(reply["error"])
        return reply["ok"]


class OwnMode(Process):
    """mitmdump in mitmproxy's own mode for a device, in a network of its own."""

    ending = signal.SIGTERM

    def __init__(self, folder: str, cpus: set[int]) -> None:
        # mitmdump connects nowhere: its own connections would go into the device.
        options = ["--mode", f"tun:{networks.DEVICE}", "--set", "connection_strategy=lazy", *_answering(folder), *_REPORTING]
        super().__init__([*networks.apart(), _program("mitmdump"), *options], cpus)

    def __enter__(self) -> Self:
        self.hear(60)
        networks.configure(networks.MTU, make=False, inside=networks.beside(self.pid))
        self.reach = {"direct": True, "network": self.pid}
        return self


class Exec(Client):
    """`mitmdump-watm exec` with a client as the program: a process of mitmdump whose input and output
    are the program's."""

    def __init__(self, folder: str, cpus: set[int], of_program: set[int]) -> None:
        self._folder, self._of_program = folder, of_program
        super().__init__({"direct": True}, cpus)

    def command(self, reach: dict, *flags: str) -> list[str | pathlib.Path]:
        """Returns the command for mitmdump with a client."""
        options = ["--set", "connection_strategy=lazy", *_answering(self._folder)]
        program = ["taskset", "-c", ",".join(map(str, self._of_program)), *super().command(reach, *flags)]
        return [_program("mitmdump-watm"), *options, "exec", "--", *program]

    def __enter__(self) -> Self:
        self.hear(60)
        return self


class Crowd(Process):
    """A process of tests/wgclient as a second peer that opens flows and holds them."""

    def __init__(self, reach: dict, cpus: set[int], flows: int) -> None:
        tunnel = _tunnel(reach | {"private_key": reach["second_private_key"]})
        command = [environment.CLIENT, "idle", *tunnel, "--address=10.0.0.9", f"--flows={flows}", "--timeout=10m"]
        super().__init__(command, cpus)

    def __enter__(self) -> Self:
        self.hear(4 * LIMIT)
        return self


def _program(name: str) -> pathlib.Path:
    return pathlib.Path(sys.executable).with_name(name)


def _answering(folder: str) -> list[str | pathlib.Path]:
    """Returns the options for a mitmdump that answers every request, with its files in a folder."""
    return ["--set", f"confdir={folder}", "-s", HERE / "answering_addon.py", "--quiet"]


_REPORTING = ["-s", HERE / "serving_addon.py"]


def _tunnel(reach: dict) -> list[str]:
    if reach["direct"]:
        return ["--direct"]
    return [f"--{name}={reach[name.replace('-', '_')]}" for name in ("server", "private-key", "peer-public-key")]
