"""A TUN device in a network namespace that each test makes. Long segments and datagrams cross it in one piece. Faults
around it cost one line of the log each, and nothing of other servers in the process: the device disappears, and a program
opens flows without end.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from watm_test_support.spaces import Space, run, spaces

DEVICE = "watm0"
# Seconds until the server must have noticed something, also on a busy machine.
PATIENCE = 30

# Opens 20,000 flows of datagrams from one socket, and a connection before, which it uses again after them.
FLOOD = """
import socket, sys
with socket.create_connection(("192.0.2.7", 80), 20) as kept, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    kept.settimeout(20)
    s.settimeout(0.05)
    answered = 0
    for number in range(20_000):
        s.sendto(b"hello", (f"192.0.2.{1 + number % 200}", 1000 + number // 200))
        if number % 50 == 49:
            try:
                for _ in range(50):
                    answered += s.recv(100) == b"hello"
            except TimeoutError:
                pass
    kept.sendall(b"still here")
    assert kept.recv(100) == b"still here"
    with socket.create_connection(("192.0.2.8", 80), 20) as new:
        new.settimeout(20)
        new.sendall(b"new")
        assert new.recv(100) == b"new"
    print(answered)
"""

# Sends 20 MB each way on one connection over each family, then datagrams of 1,000 bytes, six in each call.
BULK = """
import hashlib, os, socket, threading
sent = os.urandom(20_000_000)
for host in ("192.0.2.7", "2001:db8::7"):
    with socket.create_connection((host, 80), 20) as s:
        s.settimeout(20)
        threading.Thread(target=s.sendall, args=(sent,), daemon=True).start()
        received = bytearray()
        while len(received) < len(sent):
            received += s.recv(1 << 20)
        assert hashlib.sha256(received).digest() == hashlib.sha256(sent).digest()
UDP_SEGMENT = 103
for family, host in ((socket.AF_INET, "192.0.2.7"), (socket.AF_INET6, "2001:db8::7")):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(20)
        s.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
        datagrams = [bytes([number]) * 1000 for number in range(5)] + [b"the rest"]
        s.sendto(b"".join(datagrams), (host, 53))
        assert sorted(s.recv(2000) for _ in datagrams) == sorted(datagrams)
"""

# Attaches to a device without headers, and sends six datagrams in one call. Prints the lengths of the packets.
PLAIN = """
import fcntl, os, socket, struct, sys
TUNSETIFF, IFF_TUN, IFF_NO_PI, UDP_SEGMENT = 0x400454CA, 0x0001, 0x1000, 103
device = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", sys.argv[1].encode(), IFF_TUN | IFF_NO_PI))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
    s.sendto(bytes(5_500), ("192.0.2.7", 53))
lengths = []
while sum(lengths) < 5_500:
    packet = os.read(device, 70_000)
    if packet[0] >> 4 == 4:
        lengths.append(len(packet))
print(lengths)
"""

# Uses a flow, says so, and waits for the end of the process.
HOLD = """
import socket, sys
with socket.create_connection(("192.0.2.7", 80), 20) as kept:
    kept.sendall(b"hello")
    assert kept.recv(100) == b"hello"
    print("open", flush=True)
    sys.stdin.read()
"""


class Server:
    """A server for the device of a namespace, and another one. Use `serving`."""

    def __init__(self, space: Space, log: pathlib.Path) -> None:
        self.space, self._log = space, log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                space.command(sys.executable, pathlib.Path(__file__).with_name("serve_device.py"), DEVICE),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.port = int(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server ended with {self.process.wait()}:\n{self.log}"
        return line

    @property
    def log(self) -> str:
        """Its log so far."""
        return self._log.read_text()

    def state(self) -> dict[str, float]:
        """Asks both servers for their state."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self._answer())

    def others_are_served(self) -> None:
        """Uses the other server of the process."""
        script = (
            "import socket, sys\n"
            "with socket.create_connection(('127.0.0.1', int(sys.argv[1])), 20) as s:\n"
            "    s.sendall(b'other')\n"
            "    s.shutdown(socket.SHUT_WR)\n"
            "    assert s.recv(100) == b'other'\n"
        )
        self.space.run(sys.executable, "-c", script, str(self.port))

    def wait_for(self, words: str) -> None:
        """Waits until the log has these words."""
        end = time.monotonic() + PATIENCE
        while words not in self.log:
            assert time.monotonic() < end, f"{words!r} is not in:\n{self.log}"
            time.sleep(0.02)


@contextlib.contextmanager
def serving(log: pathlib.Path) -> Iterator[Server]:
    """Runs both servers in a namespace with a device, for the length of the block."""
    with spaces(1) as [space]:
        space.run("ip", "tuntap", "add", DEVICE, "mode", "tun")
        space.run("ip", "address", "add", "198.18.0.2/32", "dev", DEVICE)
        space.run("ip", "link", "set", DEVICE, "up")
        space.run("ip", "route", "add", "192.0.2.0/24", "dev", DEVICE)
        space.run("ip", "address", "add", "fd00::2/128", "dev", DEVICE, "nodad")
        space.run("ip", "route", "add", "2001:db8::/64", "dev", DEVICE)
        server = Server(space, log)
        try:
            yield server
        finally:
            server.process.kill()
            server.process.wait()
            for pipe in (server.process.stdin, server.process.stdout):
                assert pipe is not None
                pipe.close()


def delete(server: Server) -> None:
    """Deletes the device."""
    server.space.run("ip", "link", "delete", DEVICE)


def delete_its_namespace(server: Server) -> None:
    """Moves the device to another namespace, and deletes that."""
    with spaces(1) as [other]:
        server.space.run("ip", "link", "set", DEVICE, "netns", other.name)


def test_long_segments_and_datagrams_cross_the_device_in_one_piece(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path / "log") as server:
        server.space.run(sys.executable, "-c", BULK)
        state = server.state()
        # The device carries packets of 1,500 bytes.
        assert state["bytes_received"] / state["packets_received"] > 3_000, state
        assert state["bytes_sent"] / state["packets_sent"] > 3_000, state
        assert state["restarts"] == 0
        server.process.communicate()
        # A device that stays has no offloads afterwards.
        lengths = server.space.run(sys.executable, "-c", PLAIN, DEVICE)
        assert lengths == "[1028, 1028, 1028, 1028, 1028, 528]\n"


@pytest.mark.parametrize("disappear", [delete, delete_its_namespace], ids=["deleted", "namespace"])
def test_a_device_that_disappears_ends_its_flows_and_nothing_else(
    tmp_path: pathlib.Path, disappear: Callable[[Server], None]
) -> None:
    with serving(tmp_path / "log") as server:
        command = server.space.command(sys.executable, "-c", HOLD)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "open\n"
            assert server.state()["flows"] == 1
            disappear(server)
            server.wait_for("the device tun is gone")
            program.communicate()
        before = server.state()
        assert (before["flows"], before["restarts"]) == (0, 0)
        time.sleep(2)
        after = server.state()
        # An idle process: a loop would take most of the two seconds, and thousands of calls.
        assert after["cpu"] - before["cpu"] < 0.5, (before, after)
        assert after["calls"] - before["calls"] < 50, (before, after)
        server.others_are_served()
        warnings = [line for line in server.log.splitlines() if not line.startswith("INFO")]
        [line] = warnings
        assert "make the device again and restart this server" in line


def test_a_program_that_opens_twenty_thousand_flows_keeps_its_others(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path / "log") as server:
        answered = int(server.space.run(sys.executable, "-c", FLOOD))
        assert answered > 10_000
        server.others_are_served()
        state = server.state()
        assert state["opened"] > 16_384
        assert state["flows"] <= 16_384
        assert state["restarts"] == 0
        warnings = [line for line in server.log.splitlines() if not line.startswith("INFO")]
        assert len(warnings) <= 1, warnings


def test_nothing_stays_after_a_kill(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path / "log") as server:
        server.process.kill()
        server.process.wait()
        # The device is the user's, and stays. Another process can take it at once.
        again = Server(server.space, tmp_path / "again")
        try:
            script = (
                "import socket\n"
                "with socket.create_connection(('192.0.2.7', 80), 20) as s:\n"
                "    s.sendall(b'again')\n"
                "    assert s.recv(100) == b'again'\n"
            )
            server.space.run(sys.executable, "-c", script)
        finally:
            again.process.kill()
            again.process.communicate()
        names = [link["ifname"] for link in json.loads(server.space.run("ip", "-json", "link"))]
        assert sorted(names) == ["lo", DEVICE]
    assert server.space.name not in run("ip", "netns")
