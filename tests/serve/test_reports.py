"""Reports of `watm serve` about connections: a log record for each, and metrics."""

import contextlib
import pathlib
import re
import socket
import subprocess
import time

import pytest

from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES
from watm_test_support.watm_serve import HOST, LIMIT, Serving, connect, serving

from .behind import echo
from .programs import wait_for


def config(upstream: int, logs: str = "", more: str = "") -> str:
    return f"""
[logs]
{logs}
[metrics]
listen = "{HOST}:0"
clients = 3
[[listener]]
name = "front"
module = "{MODULES / "plain.wasm"}"
addresses = ["0.0.0.0:0"]
upstream = "{HOST}:{upstream}"
{more}
"""


def say(port: int, data: bytes, client: str = HOST) -> str:
    """Sends data to an echo and reads all of it. Returns the client's port."""
    with socket.create_connection((HOST, port), LIMIT, (client, 0)) as stream:
        stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: stream.recv(65536), b"")) == data
        return "{}:{}".format(*stream.getsockname())


def test_each_connection_is_one_object_of_json(tmp_path):
    with echo() as upstream, serving(tmp_path, config(upstream, 'format = "json"')) as running:
        clients = [say(running.port, b"x" * size) for size in (1, 20, 300)]
        records = sorted(running.records(3), key=lambda record: record["bytes_in"])
        assert [record["client"] for record in records] == clients
        for record, size in zip(records, (1, 20, 300), strict=True):
            assert record["bytes_in"] == record["bytes_out"] == size
            assert record["duration_ms"] >= 0
            told = {key: record[key] for key in ("level", "listener", "destination", "reason", "message")}
            assert told == {
                "level": "INFO",
                "listener": "front",
                "destination": f"{HOST}:{upstream}",
                "reason": "done",
                "message": "closed",
            }


def test_each_connection_is_one_line_of_text_or_none(tmp_path):
    with echo() as upstream, serving(tmp_path / "text", config(upstream)) as running:
        client = say(running.port, b"hello")
        running.wait_for("watm::connection")
        [line] = [line for line in running.log().splitlines() if "watm::connection" in line]
        for told in (" INFO ", f"client={client}", "bytes_in=5 bytes_out=5", 'reason="done"'):
            assert told in line
    with echo() as upstream, serving(tmp_path / "none", config(upstream, "connections = false")) as running:
        say(running.port, b"hello")
        assert running.end() == 0
        assert "watm::connection" not in running.log()


def test_bytes_are_of_so_many_clients_and_of_all_others_together(tmp_path):
    with echo() as upstream, serving(tmp_path, config(upstream, 'format = "json"')) as running:
        for number in range(1, 9):
            say(running.port, b"x" * 100 * number, f"127.0.0.{number}")
        running.records(8)
        page = running.page("/metrics")[1]
        for direction in ("in", "out"):
            found = re.findall(rf'^watm_client_bytes_total\{{client="(.*)",direction="{direction}"\}} (\d+)$', page, re.MULTILINE)
            assert len(found) == 4, page
            # The latest clients have metrics of their own.
            assert {name: int(count) for name, count in found} == {
                "127.0.0.6": 600,
                "127.0.0.7": 700,
                "127.0.0.8": 800,
                "other": 100 + 200 + 300 + 400 + 500,
            }
            assert f'watm_bytes_total{{listener="front",direction="{direction}"}} 3600\n' in page
        assert running.metric(r'watm_connections_total\{listener="front"\}') == 8


@pytest.mark.parametrize("path", ["/metrics", "/status", "/readyz"])
def test_an_upstream_that_is_away_is_told(path, tmp_path):
    away = free_port()
    with serving(tmp_path, config(away, 'format = "json"', "workers = 1")) as running:
        # The reset may arrive before `connect` returns.
        with pytest.raises(ConnectionResetError), socket.create_connection((HOST, running.port), LIMIT) as stream:
            stream.recv(1)
        assert running.record()["reason"] == "upstream-refused"
        status, body = running.page(path)
        if path == "/readyz":
            assert (status, body) == (503, f"listener front: upstream {HOST}:{away} does not answer\n")
        elif path == "/status":
            [listener] = running.status()["listeners"]
            assert listener["upstreams"] == [{"address": f"{HOST}:{away}", "ok": False}]
        else:
            assert 'watm_upstream_failures_total{listener="front"} 1\n' in body


def test_promtool_has_nothing_to_say_about_the_page(tmp_path):
    with echo() as upstream, serving(tmp_path, config(upstream)) as running:
        say(running.port, b"hello")
        running.wait_for("watm::connection")
        page = running.page("/metrics")[1]
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    assert families["watm_module_streams_accepted_total"] == "counter"
    assert families["watm_host_guest_time_seconds_total"] == "counter"
    assert families["watm_host_memory_bytes"] == "gauge"
    seconds = re.search(r'^watm_host_guest_time_seconds_total\{listener="front"\} (\S+)$', page, re.MULTILINE)
    assert 0 < float(seconds[1]) < LIMIT


def pages(running: Serving) -> tuple[str, int]:
    return HOST, int(running.wait_for(r"^metrics on .*:(\d+)$")[1])


def impatient(port: int) -> socket.socket:
    """Waits for an answer, less long than the idle timeout."""
    return socket.create_connection((HOST, port), LIMIT / 5)


def test_idle_connections_do_not_keep_others_from_the_pages(tmp_path):
    with echo() as upstream, serving(tmp_path, config(upstream)) as running, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(pages(running), LIMIT)) for _ in range(300)]
        # Some connections have begun a request.
        for stream in idle[::3]:
            with contextlib.suppress(ConnectionError):
                stream.sendall(b"GET /readyz HTTP/1.1\r\nHo")
        running.reach = impatient
        for _ in range(3):
            assert running.page("/readyz") == (200, "ready\n")
        # The oldest connections made room.
        assert idle[0].recv(1) == b""


def test_the_pages_are_there_when_the_process_has_no_descriptors(tmp_path):
    text = config(1, more="workers = 1\nconfig = 'from = \"any\"'").replace("plain.wasm", "proxy-protocol.wasm")
    limited = serving(tmp_path, text.replace("0.0.0.0:0", f"tcp://{HOST}:0"), descriptors=100)
    with limited as running, contextlib.ExitStack() as stack:
        # The module waits for the header of each.
        for _ in range(150):
            stack.enter_context(connect(running.port))
        wait_for(lambda: len(list(pathlib.Path(f"/proc/{running.process.pid}/fd").iterdir())) == 100, running.log)
        running.reach = impatient
        for _ in range(5):
            assert running.page("/metrics")[0] == 200
            # The listener accepts into the free slots.
            time.sleep(0.3)
        assert running.metric(r'watm_host_accept_shortages_total\{listener="front"\}') > 0


@pytest.mark.parametrize("path", ["/metrics", "/status", "/readyz"])
def test_a_browser_that_is_led_here_by_a_name_learns_nothing(path, tmp_path):
    """Checks DNS rebinding: a web page whose name resolves to this machine."""
    names = 'clients = 3\nhosts = ["metrics.example"]'
    with echo() as upstream, serving(tmp_path, config(upstream).replace("clients = 3", names)) as running:
        for host, status in [
            ("evil.example", 421),
            (f"localhost.evil.example:{running.port}", 421),
            ("127.0.0.1", 200),
            ("[::1]:80", 200),
            ("LOCALHOST:1", 200),
            ("metrics.example:9586", 200),
        ]:
            told, body = running.page(path, host)
            assert told == status, host
            if status == 421:
                assert body.endswith("must be an address, localhost, or a name in metrics.hosts (--metrics-host)\n")
