"""Datagrams through `watm serve`, each with a header of the PROXY protocol in both directions."""

import contextlib
import ipaddress
import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

import pytest

from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES, WATM
from watm_test_support.watm_serve import HOME, HOST, LIMIT, serving

from .behind import echo
from .programs import START

CLIENTS = {HOST: ("203.0.113.7", "198.51.100.1"), "::1": ("2001:db8::7", "2001:db8::1")}
FAMILIES = pytest.mark.parametrize("host", CLIENTS)
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def header(host: str, port: int) -> bytes:
    """Returns the header of a client of this family, without TLVs."""
    ends = [ipaddress.ip_address(end).packed for end in CLIENTS[host]]
    rest = b"".join(ends) + struct.pack(">HH", port, 443)
    family = 0x12 if len(ends[0]) == 4 else 0x22
    return SIGNATURE + struct.pack(">BBH", 0x21, family, len(rest)) + rest


@contextlib.contextmanager
def datagrams(host: str, port: int = 0) -> Iterator[socket.socket]:
    """Makes a socket with a time limit for each step."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.settimeout(START)
        made.bind((host, port))
        yield made


def config(host: str, upstream: str, more: str = "", limits: str = "") -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"""
[logs]
format = "json"
[drain]
timeout = 0.2
[metrics]
listen = "{HOST}:0"
[[listener]]
module = "{MODULES / "proxy-protocol.wasm"}"
config = 'from = "{host}"'
addresses = ["udp://{shown}:0"]
upstream = "{upstream}"
{more}
[listener.limits]
{limits}
"""


def burst(port: int, clients: range) -> None:
    """Sends the first datagram of each client at once, in trains, which take little of the kernel's queue."""
    udp_segment = 103
    with datagrams(HOST) as near:
        near.connect((HOST, port))
        for train in (clients[at : at + 50] for at in range(0, len(clients), 50)):
            each = [header(HOST, client) + b"hello" for client in train]
            size = struct.pack("H", len(each[0]))
            near.sendmsg([b"".join(each)], [(socket.SOL_UDP, udp_segment, size)])


def of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@FAMILIES
def test_each_begins_with_who_it_is_from_on_both_sides(host, tmp_path):
    """Checks a chain of two: the second passes on the header of the first."""
    with datagrams(host) as upstream, datagrams(host) as near, contextlib.ExitStack() as stack:
        second = stack.enter_context(serving(tmp_path / "second", config(host, of(upstream), 'proxy-header = "v2"')))
        second_at = of(upstream).rpartition(":")[0] + f":{second.port}"
        first = stack.enter_context(serving(tmp_path / "first", config(host, second_at, 'proxy-header = "v2"')))
        for payload in (b"one", b"", b"x" * 1200):
            for port in (5001, 5002):
                near.sendto(header(host, port) + payload, (host, first.port))
                heard, far = upstream.recvfrom(65536)
                said = header(host, port)
                # The header has another length and a checksum. The client's data follows.
                assert heard[:14] == said[:14]
                assert heard[16 : len(said)] == said[16:]
                assert heard[len(said) : len(said) + 3] == b"\x03\0\4"
                assert heard[len(said) + 7 :] == payload
                upstream.sendto(b"answer to %d" % port, far)
                assert near.recv(100) == b"answer to %d" % port


def test_to_where_the_client_wants_as_far_as_that_is_allowed(tmp_path):
    with datagrams(HOST) as allowed, datagrams(HOST) as denied, datagrams(HOST) as near:
        text = config(HOST, "dynamic", f'allow = ["udp://{of(allowed)}"]')
        with serving(tmp_path, text) as running:
            for wanted in (denied, allowed):
                host, port = wanted.getsockname()
                ends = b"".join(ipaddress.ip_address(end).packed for end in ("203.0.113.7", host))
                said = SIGNATURE + struct.pack(">BBH", 0x21, 0x12, 12) + ends + struct.pack(">HH", 5001, port)
                near.sendto(said + b"hello", (HOST, running.port))
            assert allowed.recv(100) == b"hello"
            record = running.record()
            assert (record["reason"], record["destination"]) == ("denied", of(denied))


def test_a_flow_that_is_silent_ends_and_is_one_record(tmp_path):
    with datagrams(HOST) as upstream, datagrams(HOST) as near:
        text = config(HOST, of(upstream), limits="datagram-idle-timeout = 1.5")
        with serving(tmp_path, text) as running:
            began = time.monotonic()
            for _ in range(3):
                near.sendto(header(HOST, 5001) + b"hello", (HOST, running.port))
                heard, far = upstream.recvfrom(100)
                upstream.sendto(b"answer", far)
                assert near.recv(100) == b"answer"
                time.sleep(0.1)
            record = running.record()
            assert 1.6 < time.monotonic() - began < 15
            told = {key: record[key] for key in ("client", "bytes_in", "bytes_out", "reason", "destination")}
            assert told == {
                "client": "203.0.113.7:5001",
                "bytes_in": 15,
                "bytes_out": 18,
                "reason": "idle",
                "destination": of(upstream),
            }
            assert 'watm_client_bytes_total{client="203.0.113.7",direction="in"} 15\n' in running.page("/metrics")[1]
            # The next datagram begins another flow.
            near.sendto(header(HOST, 5001) + b"again", (HOST, running.port))
            assert upstream.recv(100) == b"again"


def test_each_address_stays_with_its_worker(tmp_path):
    """Checks that every worker has flows."""
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(datagrams(HOST))
        running = stack.enter_context(serving(tmp_path, config(HOST, of(upstream), "workers = 2")))
        proxies = [stack.enter_context(datagrams(HOST)) for _ in range(40)]
        heard = {}
        for _ in range(3):
            for port, near in enumerate(proxies, 5001):
                near.sendto(header(HOST, port) + b"%d" % port, (HOST, running.port))
                said, far = upstream.recvfrom(100)
                assert said == b"%d" % port
                # Another worker would use another socket.
                assert heard.setdefault(port, far) == far
                upstream.sendto(b"answer to %d" % port, far)
                assert near.recv(100) == b"answer to %d" % port
        [listener] = running.status()["listeners"]
        flows = [worker["flows"] for worker in listener["workers"]]
        assert len(flows) == 2 and sum(flows) == len(proxies) and all(flows)


def test_of_workers_for_both_the_first_has_the_datagrams(tmp_path):
    """Checks that one worker has all datagrams by default."""
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(datagrams(HOST))
        port = free_port()
        text = config(HOST, of(upstream)).replace("udp://127.0.0.1:0", f"udp://{HOST}:{port}\", \"tcp://{HOST}:{port}")
        running = stack.enter_context(serving(tmp_path, text))
        proxies = [stack.enter_context(datagrams(HOST)) for _ in range(20)]
        for client, near in enumerate(proxies, 5001):
            near.sendto(header(HOST, client) + b"hello", (HOST, port))
            assert upstream.recv(100) == b"hello"
        [listener] = running.status()["listeners"]
        workers = listener["workers"]
        assert len(workers) == len(os.sched_getaffinity(0))
        assert [worker["flows"] for worker in workers] == [len(proxies), *[0] * (len(workers) - 1)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (config(HOST, f"{HOST}:1", 'proxy-header = "v1"'), "proxy-header: must be v2 for datagrams"),
        (config(HOST, "unix:/nowhere"), "upstream: must be host:port for datagrams"),
        (config(HOST, f"{HOST}:1", 'decoy = "unix:/nowhere"'), "decoy: must be host:port for datagrams"),
    ],
)
def test_what_datagrams_do_not_have_is_refused(text, reason, tmp_path):
    file = tmp_path / "serve.toml"
    file.write_text(text)
    command = [WATM, "serve", "--unsealed", "--check", file]
    done = subprocess.run(command, capture_output=True, text=True, env={"HOME": HOME.name}, timeout=START)
    assert done.returncode == 2
    assert f"listener 1: {reason}" in done.stderr


def test_a_burst_of_new_clients_loses_nothing(tmp_path):
    """Sends all datagrams before the program reads the first."""
    clients = range(10_000, 12_000)
    with datagrams(HOST) as upstream:
        with serving(tmp_path, config(HOST, of(upstream), limits="datagram-idle-timeout = 60")) as running:
            running.process.send_signal(signal.SIGSTOP)
            burst(running.port, clients)
            running.process.send_signal(signal.SIGCONT)
            running.wait_until(lambda: running.metric("watm_bytes_total.*in") == 5 * len(clients))
            assert running.metric("watm_connections_open") == len(clients)


def test_flows_leave_descriptors_for_all_else_and_the_idlest_make_room(tmp_path):
    clients = range(10_000, 11_000)
    with echo() as stream, datagrams(HOST, stream) as upstream, datagrams(HOST) as near:
        port = free_port()
        # An address without a scheme is for TCP.
        text = config(HOST, f"tcp://{of(upstream)}", limits="datagram-idle-timeout = 60")
        text = text.replace(f"udp://{HOST}:0", f'udp://{HOST}:{port}", "{HOST}:{port}')
        with serving(tmp_path, text, descriptors=256) as running:
            for client in clients:
                near.sendto(header(HOST, client) + b"hello", (HOST, port))
                assert upstream.recv(100) == b"hello"
            # Descriptors remain for pages and connections.
            assert running.metric("watm_connections_open") == 128
            assert running.metric('watm_connections_closed_total.*"evicted"') == len(clients) - 128
            with socket.create_connection((HOST, port), LIMIT) as connection:
                connection.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.1 5555 443\r\nhello")
                assert connection.recv(5) == b"hello"
            # The newest flows remain.
            near.sendto(header(HOST, clients[-100]) + b"again", (HOST, port))
            heard, far = upstream.recvfrom(100)
            upstream.sendto(b"answer", far)
            assert near.recv(100) == b"answer"
            assert running.metric('watm_connections_closed_total.*"evicted"') == len(clients) - 128
            reached = [line for line in running.log().splitlines() if "datagram flows reached their limit" in line]
            assert len(reached) == 1 and "LimitNOFILE" in reached[0]


@pytest.mark.parametrize("busy", [False, True])
def test_a_drain_does_not_wait_for_datagrams(busy, tmp_path):
    """Checks that flows in use continue for the time of the drain, because datagram flows have no end."""
    text = config(HOST, "upstream", limits="datagram-idle-timeout = 60")
    with datagrams(HOST) as upstream, datagrams(HOST) as near:
        text = text.replace('"upstream"', f'"{of(upstream)}"').replace("timeout = 0.2", f"timeout = {3 if busy else 60}")
        with serving(tmp_path, text) as running:
            near.sendto(header(HOST, 5001) + b"hello", (HOST, running.port))
            assert upstream.recv(100) == b"hello"
            running.process.terminate()
            running.wait_for("draining")
            end = time.monotonic() + LIMIT
            while busy and running.process.poll() is None:
                near.sendto(header(HOST, 5001) + b"again", (HOST, running.port))
                time.sleep(0.1)
                assert time.monotonic() < end
            assert running.process.wait(LIMIT) == 0
            assert "did not end in time" not in running.log()
            # A datagram that arrives at the end may begin another flow.
            reasons = set(re.findall(r'"reason":"(\w+)"', running.log()))
            assert reasons == {"forced" if busy else "idle"}
