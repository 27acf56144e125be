"""The limits of `watm serve`, and its end."""

import contextlib
import re
import signal
import socket
import subprocess
import time

import pytest

from watm_test_support.repository import MODULES, ROOT
from watm_test_support.watm_serve import HOST, LIMIT, serving

from .behind import echo

# A module that obeys commands.
GUEST = ROOT / "build/guest.wasm"
MODULE = pytest.mark.parametrize("module", ["plain.wasm", "plain.watm1.wasm"])


def config(module: str, upstream: int, more: str = "", limits: str = "", drain: float = 30) -> str:
    return f"""
[logs]
format = "json"
[metrics]
listen = "{HOST}:0"
[drain]
timeout = {drain}
[[listener]]
module = "{MODULES / module}"
addresses = ["0.0.0.0:0"]
upstream = "{HOST}:{upstream}"
{more}
[listener.limits]
{limits}
"""


def talks(stream: socket.socket) -> bool:
    """Returns true if the application answers."""
    with contextlib.suppress(ConnectionError):
        stream.sendall(b"hello")
        return stream.recv(5) == b"hello"
    return False


def is_cut(stream: socket.socket, module: str) -> bool:
    """Returns true if the connection was reset. A WATER module cannot reset one: for it, true if it ended."""
    try:
        return stream.recv(1) == b"" and module.endswith(".watm1.wasm")
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(("more", "backlog"), [("", 1024), ("backlog = 2000", 2000)])
def test_each_worker_has_a_socket_with_room_for_a_crowd(more, backlog, tmp_path):
    with echo() as upstream, serving(tmp_path, config("plain.wasm", upstream, f"{more}\nworkers = 3")) as running:
        listening = ["ss", "--no-header", "--listening", "--tcp", "--numeric", f"sport = {running.port}"]
        shown = subprocess.run(listening, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
        # The third column is the length of the backlog.
        assert [int(line.split()[2]) for line in shown] == [backlog] * 3


@pytest.mark.parametrize(("more", "workers"), [("", 1), ("workers = 2", 2)])
def test_a_module_that_is_to_be_alone_has_one_worker_or_it_is_said(more, workers, tmp_path):
    (tmp_path / "server.json").write_text('{"method": "aes-256-gcm", "password": "geheim"}')
    more += '\nconfig-file = "server.json"'
    text = config("shadowsocks.wasm", 9, more).replace('"0.0.0.0:0"', '"tcp://127.0.0.1:0"')
    with serving(tmp_path, text) as running:
        [listener] = running.status()["listeners"]
        assert listener["worker_count"] == workers
        assert ("must run as one instance, but 2 workers run" in running.log()) == (workers == 2)


@MODULE
def test_connections_of_a_client_and_of_all_are_limited(module, tmp_path):
    limits = "connections = 3\nconnections-per-client = 2"
    with (
        echo() as upstream,
        serving(tmp_path, config(module, upstream, "workers = 2", limits)) as running,
        contextlib.ExitStack() as stack,
    ):

        def come(client: str) -> socket.socket:
            return stack.enter_context(socket.create_connection((HOST, running.port), LIMIT, (client, 0)))

        def is_refused(client: str) -> bool:
            # The reset may arrive before `connect` returns.
            with contextlib.suppress(ConnectionError):
                return not talks(come(client))
            return True

        open_ones = [come("127.0.0.2") for _ in range(2)]
        assert all(talks(each) for each in open_ones)
        assert is_refused("127.0.0.2")
        open_ones.append(come("127.0.0.3"))
        assert talks(open_ones[2])
        assert is_refused("127.0.0.4")
        records = running.records(2)
        assert [(record["client"].split(":")[0], record["reason"]) for record in records] == [
            ("127.0.0.2", "client-limit"),
            ("127.0.0.4", "limit"),
        ]
        assert running.metric(r'watm_connections_open\{listener="1"\}') == 3
        assert running.metric(r'watm_connections_closed_total\{listener="1",reason="limit"\}') == 1
        # A client that leaves makes room.
        open_ones[0].close()
        running.records(3)
        assert talks(come("127.0.0.4"))
        assert talks(open_ones[1])


def test_a_proxys_connections_are_those_of_its_clients(tmp_path):
    """Checks that a proxy may have any number of connections without a header yet."""
    more = 'config = """\nfrom = "any"\nheader-time = "30"\n"""'
    text = config("proxy-protocol.wasm", 1, more, "connections-per-client = 2").replace('"0.0.0.0:0"', '"tcp://0.0.0.0:0"')
    with echo() as upstream, contextlib.ExitStack() as stack:
        text = text.replace(f"{HOST}:1\"", f"{HOST}:{upstream}\"")
        with serving(tmp_path, text) as running:

            def come() -> socket.socket:
                return stack.enter_context(socket.create_connection((HOST, running.port), LIMIT))

            def introduce(stream: socket.socket, number: int) -> bool:
                stream.sendall(f"PROXY TCP4 192.0.2.{number} 192.0.2.255 1 2\r\n".encode())
                return talks(stream)

            assert introduce(come(), 1)
            later = [come() for _ in range(10)]
            # A longer time than other clients have.
            time.sleep(2.5)
            assert all([introduce(stream, 2 + number) for number, stream in enumerate(later)])
            # A client is the same at every listener.
            assert introduce(come(), 1)
            third = come()
            with contextlib.suppress(ConnectionError):
                assert not introduce(third, 1)


@MODULE
@pytest.mark.parametrize(("limits", "reason"), [("idle-timeout = 1", "idle"), ("lifetime = 3", "lifetime")])
def test_connections_end_when_they_are_silent_or_old(limits, reason, module, tmp_path):
    with (
        echo() as upstream,
        serving(tmp_path, config(module, upstream, limits=limits)) as running,
        running.reach(running.port) as stream,
    ):
        began = time.monotonic()
        # Longer than the idle timeout, and shorter than the lifetime.
        for _ in range(5):
            assert talks(stream)
            time.sleep(0.25)
        assert is_cut(stream, module)
        assert 1.2 < time.monotonic() - began < 10
        assert running.record()["reason"] == reason


def test_log_records_of_connections_have_a_rate(tmp_path):
    limits = "log-records = 1"
    with echo() as upstream, serving(tmp_path, config("plain.wasm", upstream, limits=limits)) as running:
        for _ in range(40):
            with running.reach(running.port) as stream:
                assert talks(stream)
        running.wait_until(lambda: running.metric(r'watm_connections_closed_total\{listener="1",reason="done"\}') == 40)
        omitted = running.metric(r'watm_connection_records_omitted_total\{listener="1"\}')
        # Ten records at once, and one for each second that the connections took.
        assert 10 <= 40 - omitted < 25
        running.records(int(40 - omitted))
        # A reload changes the rate, and the next record is announced with the number of those omitted.
        file = tmp_path / "serve.toml"
        file.write_text(file.read_text().replace(limits, "log-records = 100"))
        running.reload()
        with running.reach(running.port) as stream:
            assert talks(stream)
        found = running.wait_for(r"(\d+) connections ended without a log record")
        assert 0 < int(found[1]) <= omitted


def test_an_upstream_has_its_time_to_accept(tmp_path):
    """Checks an upstream whose full backlog drops SYNs."""
    limits = "connect-timeout = 0.5"
    with socket.create_server((HOST, 0), backlog=0) as full, contextlib.ExitStack() as stack:
        upstream = full.getsockname()
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(upstream)
        running = stack.enter_context(serving(tmp_path, config("plain.wasm", upstream[1], limits=limits)))
        stream = stack.enter_context(running.reach(running.port))
        began = time.monotonic()
        assert is_cut(stream, "plain.wasm")
        assert 0.45 < time.monotonic() - began < 10
        assert running.record()["reason"] == "upstream-timeout"


def test_the_end_waits_for_no_worker_that_does_not_answer(tmp_path):
    """Checks modules that are busy for a second of CPU time each, 16 of them, when the program is to end."""
    text = config("plain.wasm", 9, "workers = 16", drain=0.1).replace("0.0.0.0", f"udp://{HOST}")
    text = text.replace(str(MODULES / "plain.wasm"), str(GUEST))
    with serving(tmp_path, text) as running, contextlib.ExitStack() as stack:
        for _ in range(400):
            client = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            client.sendto(b"!spin", (HOST, running.port))
        # Long enough for all to begin, on a machine with a core.
        time.sleep(0.3)
        asked = time.monotonic()
        running.end()
        assert time.monotonic() - asked < 4


@MODULE
def test_a_drain_ends_at_its_deadline(module, tmp_path):
    with (
        echo() as upstream,
        serving(tmp_path, config(module, upstream, drain=2)) as running,
        running.reach(running.port) as stays,
        running.reach(running.port) as goes,
    ):
        assert talks(stays) and talks(goes)
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        running.wait_for("^draining$")
        assert talks(stays) and talks(goes)
        goes.close()
        assert running.process.wait(LIMIT) == 1
        assert 1.9 < time.monotonic() - began < 10
        assert is_cut(stays, module)
        assert "watm: 1 connections did not end in time" in running.said()
        reasons = re.findall(r'"reason":"([a-z-]+)"', running.log())
        assert sorted(reasons) == ["done", "forced"]
