"""Paths to wireguard-go with a smaller MTU than Ethernet, and networks that change. The tests count
sent and lost packets.
"""

import contextlib
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from watm_test_support.repository import WATM
from watm_test_support.spaces import Space, spaces, wireguard_go

from .programs import WIREGUARD
from .services import counting, running, sending
from .test_chains import configs, fragments

# For each tunnel from the outermost on: the inner address of its end, and the port of its
# wireguard-go.
ENDS = ("10.7.0.1", "10.8.0.1", "10.9.0.1")
PORTS = (51820, 51821, 51822)
COUNTED, SENT = 7000, 7001
UP, DOWN = 7010, 7011
# The interfaces at both ends have the MTU of Ethernet. A link between them has a smaller one.
WIDE, NARROW = 1400, 1300
SERVER = "10.1.3.2"
SIZE = 20_000_000
# Requests a number of bytes from a port. Prints the number that arrived, and the longest pause in
# milliseconds.
FETCH = """
import socket, sys, time
port, size = map(int, sys.argv[1:3])
with socket.create_connection(("127.0.0.1", port)) as stream:
    stream.sendall(b"%d\\n" % size)
    read, longest, last = 0, 0.0, time.monotonic()
    while data := stream.recv(65536):
        now = time.monotonic()
        longest, last, read = max(longest, now - last), now, read + len(data)
        print(read, flush=True) if len(sys.argv) > 3 else None
print(read, round(longest * 1000))
"""
# Sends a number of bytes to a port. Prints the number that the other end has counted.
PUT = """
import socket, sys
port, size = map(int, sys.argv[1:3])
with socket.create_connection(("127.0.0.1", port)) as stream:
    stream.sendall(bytes(size))
    stream.shutdown(socket.SHUT_WR)
    print(int(stream.recv(100)))
"""


def link(one: Space, other: Space, names: tuple[str, str], addresses: tuple[str, str], mtu: int) -> None:
    """Connects two namespaces by a pair of interfaces."""
    one.run("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1], "netns", other.name)
    for space, name, address in zip((one, other), names, addresses, strict=True):
        space.configure(name, [f"{address}/24"], mtu)


def forwards(space: Space) -> None:
    space.run("sysctl", "-qw", "net.ipv4.ip_forward=1")


@pytest.fixture(scope="module")
def path() -> Iterator[tuple[Space, ...]]:
    """Yields the client's namespace, two routers with a narrow link between them, and the server's."""
    with spaces(4) as (near, first, second, far):
        link(near, first, ("out", "in"), ("10.1.1.1", "10.1.1.2"), WIDE)
        link(first, second, ("out", "in"), ("10.1.2.1", "10.1.2.2"), NARROW)
        link(second, far, ("out", "in"), ("10.1.3.1", SERVER), WIDE)
        for router in (first, second):
            forwards(router)
        near.run("ip", "route", "add", "default", "via", "10.1.1.2")
        first.run("ip", "route", "add", "10.1.3.0/24", "via", "10.1.2.2")
        second.run("ip", "route", "add", "10.1.1.0/24", "via", "10.1.2.1")
        far.run("ip", "route", "add", "default", "via", "10.1.3.1")
        yield near, first, second, far


@contextlib.contextmanager
def tunnel(near: Space, folder: pathlib.Path, config: pathlib.Path, *options: object) -> Iterator[list[str]]:
    """Runs `watm tunnel` with the port forwards `UP` and `DOWN` to its end. Yields its output once the tunnel is up."""
    command = [WATM, "tunnel", "--unsealed", "--module", WIREGUARD, "--state", folder / "state.json", config, *options]
    process = subprocess.Popen(near.command(*map(str, command)), stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    up = threading.Event()

    def listen() -> None:
        for line in process.stderr:
            said.append(line)
            if " is up" in line:
                up.set()

    reader = threading.Thread(target=listen)
    reader.start()
    try:
        assert up.wait(30), said
        yield said
    finally:
        process.terminate()
        assert process.wait(30) == 0, said
        reader.join()


def to(end: str) -> list[str]:
    """Returns the options for the two port forwards."""
    pairs = ((UP, COUNTED), (DOWN, SENT))
    return [text for here, there in pairs for text in ("--forward", f"tcp:127.0.0.1:{here}={end}:{there}")]


def fetch(space: Space, size: int = SIZE) -> tuple[int, int]:
    """Returns the number of bytes that arrived, and the longest pause in milliseconds."""
    read, silence = space.run(sys.executable, "-c", FETCH, str(DOWN), str(size)).split()
    return int(read), int(silence)


def put(space: Space) -> int:
    return int(space.run(sys.executable, "-c", PUT, str(UP), str(SIZE)))


@contextlib.contextmanager
def services(space: Space, address: str) -> Iterator[None]:
    with counting(space, address, COUNTED), sending(space, address, SENT):
        yield


@pytest.mark.parametrize("first", ["down", "up"])
def test_packets_fit_a_path_that_is_narrow_in_the_middle(path, tmp_path: pathlib.Path, first: str) -> None:
    near, *_, far = path
    server, client = configs(ENDS[0], SERVER, PORTS[0], "")
    (tmp_path / "wg0.conf").write_text(client)
    # The kernel must not know path MTUs from an earlier test.
    for space in path:
        space.run("ip", "route", "flush", "cache")
    with (
        wireguard_go(far, far, server, [f"{ENDS[0]}/24"]),
        services(far, ENDS[0]),
        tunnel(near, tmp_path, tmp_path / "wg0.conf", *to(ENDS[0])),
    ):
        before = [fragments(space) for space in path]
        for way in ("down", "up") if first == "down" else ("up", "down"):
            assert (fetch(near)[0] if way == "down" else put(near)) == SIZE
        assert [fragments(space) for space in path] == before


def test_a_path_gets_narrow_under_an_open_connection(path, tmp_path: pathlib.Path) -> None:
    near, one, other, far = path
    server, client = configs(ENDS[0], SERVER, PORTS[0], "")
    (tmp_path / "wg0.conf").write_text(client)
    for space, name in ((one, "out"), (other, "in")):
        space.run("ip", "link", "set", name, "mtu", str(WIDE))
    for space in path:
        space.run("ip", "route", "flush", "cache")
    try:
        with (
            wireguard_go(far, far, server, [f"{ENDS[0]}/24"]),
            services(far, ENDS[0]),
            tunnel(near, tmp_path, tmp_path / "wg0.conf", *to(ENDS[0])),
        ):
            command = [sys.executable, "-c", PUT_SLOWLY, str(UP), str(SIZE)]
            process = subprocess.Popen(near.command(*command), stdout=subprocess.PIPE, text=True)
            assert process.stdout.readline() == "half\n"
            before = fragments(near)
            for space, name in ((one, "out"), (other, "in")):
                space.run("ip", "link", "set", name, "mtu", str(NARROW))
            assert process.communicate(timeout=60)[0] == f"{SIZE}\n"
            assert process.returncode == 0
            assert fragments(near) == before
    finally:
        for space, name in ((one, "out"), (other, "in")):
            space.run("ip", "link", "set", name, "mtu", str(NARROW))


def test_a_path_that_loses_long_packets_without_a_word(tmp_path: pathlib.Path) -> None:
    server, client = configs(ENDS[0], SERVER, PORTS[0], "")
    (tmp_path / "wg0.conf").write_text(client)
    with spaces(2) as (near, far):
        link(near, far, ("out", "in"), ("10.1.3.1", SERVER), 1500)
        # An interface receives no longer packets from its pair, except trains.
        far.run("ip", "link", "set", "in", "mtu", str(WIDE))
        near.run("ip", "link", "set", "out", "gso_max_segs", "1")
        with (
            wireguard_go(far, far, server, [f"{ENDS[0]}/24"]),
            services(far, ENDS[0]),
            tunnel(near, tmp_path, tmp_path / "wg0.conf", *to(ENDS[0])),
        ):
            assert put(near) == SIZE


# Works like `PUT`, and prints a line when half is sent.
PUT_SLOWLY = PUT.replace(
    "stream.sendall(bytes(size))",
    "stream.sendall(bytes(size // 2)); print('half', flush=True); stream.sendall(bytes(size - size // 2))",
)


def test_tunnels_in_tunnels_need_no_mtu(path, tmp_path: pathlib.Path) -> None:
    """Checks three nested tunnels over a narrow path."""
    near, *_, far = path
    with spaces(2) as (middle, inmost), contextlib.ExitStack() as stack:
        outside, host = far, SERVER
        for number, inside in enumerate((middle, inmost, inmost)):
            server, client = configs(ENDS[number], host, PORTS[number], "")
            (tmp_path / f"{number}.conf").write_text(client)
            stack.enter_context(wireguard_go(outside, inside, server, [f"{ENDS[number]}/24"]))
            outside, host = inside, ENDS[number]
        stack.enter_context(services(inmost, ENDS[2]))
        options = [f"--through=udp:{WIREGUARD}={tmp_path}/{number}.conf" for number in (0, 1)]
        every = (*path, middle, inmost)
        stack.enter_context(
            running(
                near,
                *(WATM, "dial", "--unsealed", "--state", tmp_path / "state.json", WIREGUARD, "--udp"),
                *(*options, "--config", tmp_path / "2.conf", "--allow", "udp://*", *to(ENDS[2])),
                listens=DOWN,
            )
        )
        # This connection brings the tunnels up.
        assert fetch(near, 1000)[0] == 1000
        before = [fragments(space) for space in every]
        assert fetch(near)[0] == SIZE
        assert put(near) == SIZE
        assert [fragments(space) for space in every] == before


def test_an_mtu_that_does_not_fit_is_used_and_told(path, tmp_path: pathlib.Path) -> None:
    near, *_, far = path
    server, client = configs(ENDS[0], SERVER, PORTS[0], "MTU = 1420\n")
    (tmp_path / "wg0.conf").write_text(client)
    with (
        wireguard_go(far, far, server, [f"{ENDS[0]}/24"]),
        services(far, ENDS[0]),
        tunnel(near, tmp_path, tmp_path / "wg0.conf", *to(ENDS[0])) as said,
    ):
        before = fragments(near)
        assert put(near) == SIZE
        assert fragments(near) > before
    assert any("[Interface] MTU is 1420" in line for line in said), said


# Well below the 15 seconds after which silence is noticed, and long enough for a busy machine.
STALL_MS = 8000


@pytest.mark.parametrize("moves", ["address", "route"])
def test_a_download_goes_on_in_another_network(tmp_path: pathlib.Path, moves: str) -> None:
    server, client = configs(ENDS[0], SERVER, PORTS[0], "")
    (tmp_path / "wg0.conf").write_text(client)
    with spaces(3) as (near, router, far):
        link(near, router, ("old", "in"), ("10.1.1.1", "10.1.1.2"), 1500)
        link(near, router, ("new", "other"), ("10.1.2.1", "10.1.2.2"), 1500)
        link(router, far, ("out", "in"), ("10.1.3.1", SERVER), 1500)
        forwards(router)
        near.run("ip", "route", "add", "default", "via", "10.1.1.2")
        far.run("ip", "route", "add", "default", "via", "10.1.3.1")
        with (
            wireguard_go(far, far, server, [f"{ENDS[0]}/24"]),
            services(far, ENDS[0]),
            tunnel(near, tmp_path, tmp_path / "wg0.conf", *to(ENDS[0])),
        ):
            size = 10 * SIZE
            command = [sys.executable, "-c", FETCH, str(DOWN), str(size), "progress"]
            process = subprocess.Popen(near.command(*command), stdout=subprocess.PIPE, text=True)
            while int(process.stdout.readline()) < size // 100:
                pass
            if moves == "address":
                near.run("ip", "address", "delete", "10.1.1.1/24", "dev", "old")
                near.run("ip", "route", "add", "default", "via", "10.1.2.2")
            else:
                near.run("ip", "link", "set", "old", "down")
                near.run("ip", "route", "replace", "default", "via", "10.1.2.2")
            *_, last = process.communicate(timeout=120)[0].splitlines()
            read, silence = map(int, last.split())
            assert process.returncode == 0
            assert read == size
            assert silence < STALL_MS
            print(f"{moves}: {silence} ms")


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_an_endpoint_where_nobody_listens_is_told_at_once(tmp_path: pathlib.Path, family: str) -> None:
    """Checks that an ICMP error ends the attempt, which otherwise takes half a minute."""
    host = {"IPv4": "127.0.0.1", "IPv6": "[::1]"}[family]
    _, client = configs(ENDS[0], host, PORTS[0], "")
    (tmp_path / "wg0.conf").write_text(client)
    with spaces(1) as (near,):
        command = (WATM, "tunnel", "--unsealed", "--module", WIREGUARD, "--state", tmp_path / "state.json")
        options = (tmp_path / "wg0.conf", "--stdio", f"{ENDS[0]}:80")
        done = subprocess.run(near.command(*command, *options), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        # The reason is in the log and in the answer to the client. After silence it would be
        # another one.
        assert done.stderr.count(f"is unreachable: nothing listens at {host}:{PORTS[0]} (ICMP") == 2, done.stderr
