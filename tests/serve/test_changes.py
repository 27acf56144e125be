"""Reloads of `watm serve` under traffic: other modules and another configuration."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES
from watm_test_support.watm_serve import HOST, serving

from .behind import echo, nginx

MODULE = pytest.mark.parametrize("module", ["plain.wasm", "plain.watm1.wasm"])
# Seconds of traffic at most, and seconds of it after the swap.
TRAFFIC, AFTER = 60, 1


def another(module: bytes) -> bytes:
    """Returns the same module as another file, with an additional custom section."""
    content = b"\x04note" + b"another"
    return module + b"\0" + bytes([len(content)]) + content


def place(module: bytes, at: pathlib.Path) -> None:
    """Replaces a file atomically, as `watm update` does."""
    beside = at.with_suffix(".new")
    beside.write_bytes(module)
    os.replace(beside, at)


METRICS = f"""
[metrics]
listen = "{HOST}:0"
"""


def listener(name: str, module: pathlib.Path, upstream: str, more: str = "", address: str = f"{HOST}:0") -> str:
    return f"""
[[listener]]
name = "{name}"
module = "{module}"
addresses = ["{address}"]
upstream = "{upstream}"
{more}
"""


@MODULE
def test_a_watched_module_gives_way_under_traffic(module, tmp_path):
    """Checks that wrk, with a connection for each request, sees no error, and that an open connection stays."""
    file, path = tmp_path / "module.wasm", tmp_path / "nginx.sock"
    file.write_bytes((MODULES / module).read_bytes())
    with echo() as silent, nginx(tmp_path / "nginx", {f"unix:{path}": "a page"}), contextlib.ExitStack() as stack:
        front = listener("front", file, f"unix:{path}", "workers = 2")
        back = listener("back", file, f"{HOST}:{silent}")
        running = stack.enter_context(serving(tmp_path / "watm", METRICS + front + back, "--watch"))
        running.wait_for("(?s)(listening on .*){2}")
        front, back = running.ports()
        with running.reach(back) as stays:
            stays.sendall(b"before")
            assert stays.recv(6) == b"before"
            command = ["wrk", "-t1", "-c10", f"-d{TRAFFIC}s", "-H", "Connection: close", f"http://{HOST}:{front}/"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as traffic:
                place(another(file.read_bytes()), file)
                running.wait_for("(?s)(swapped in .*){2}")
                assert traffic.poll() is None, "the traffic was over before the swap was"
                time.sleep(AFTER)
                traffic.send_signal(signal.SIGINT)
                said = traffic.communicate()[0]
            assert "Socket errors" not in said and "Non-2xx" not in said, said
            assert int(re.search(r"(\d+) requests in", said)[1]) > 0
            for each in running.status()["listeners"]:
                assert {worker["generation"] for worker in each["workers"]} == {1}
            stays.sendall(b"after")
            assert stays.recv(5) == b"after"
            # A file that is not a module changes nothing.
            place(b"\0asm\1\0\0\0\xff", file)
            running.wait_for("(?s)(; keeping the previous module.*){2}")
            stays.sendall(b"still")
            assert stays.recv(5) == b"still"
        with running.reach(back) as new:
            new.sendall(b"new")
            assert new.recv(3) == b"new"
        assert running.metric(r'watm_swaps_total\{listener="front",result="done"\}') == 1


def test_a_broken_configuration_changes_nothing_and_a_good_one_what_it_says(tmp_path):
    module = MODULES / "proxy-protocol.wasm"
    header = b"PROXY TCP4 192.0.2.7 192.0.2.1 5555 443\r\n"
    fixed = f"tcp://{HOST}:{free_port()}"

    def good(upstream: int, believed: str = "any") -> str:
        said = f"config = 'from = \"{believed}\"'\nworkers = 1"
        return METRICS + listener("front", module, f"{HOST}:{upstream}", said, fixed)

    with echo() as one, echo() as two, serving(tmp_path, good(one)) as running, running.reach(running.port) as stays:

        def works(stream, text: bytes) -> None:
            stream.sendall(text)
            assert stream.recv(len(text)) == text.removeprefix(header)

        stays.sendall(header)
        works(stays, b"before")
        file = running.folder / "serve.toml"
        for text, reason in [
            (good(two) + "backlock = 1\n", r"line \d+: unknown field `backlock`"),
            (good(two).replace("workers = 1", "workers = 0"), r"line \d+: workers: must be"),
            (good(two, "nobody at all"), r"listener front: .*from: "),
            (good(two) + '[listener.limits]\nlifetime = "x"\n', r"line \d+: lifetime: must be"),
            (good(two).replace("workers = 1", "workers = 2"), "listener front: workers: cannot change"),
            (good(two).replace(fixed, f"tcp://{HOST}:1"), "listener front: addresses: cannot change"),
            (good(two).replace("proxy-protocol.wasm", "missing.wasm"), r"listener front: .*missing\.wasm"),
            ("", "listener: missing"),
        ]:
            file.write_text(text)
            running.reload(rf"^watm: .*{reason}.*; keeping the previous configuration$")
        works(stays, b"still")
        status = running.status()["listeners"]
        assert [each["upstreams"][0]["address"] for each in status] == [f"{HOST}:{one}"]
        with running.reach(running.port) as new:
            new.sendall(header + b"as before")
            assert new.recv(9) == b"as before"
        # A valid configuration applies to new connections, and adds and removes listeners.
        added = listener("added", MODULES / "plain.wasm", f"{HOST}:{two}")
        file.write_text(good(two, HOST) + added)
        running.reload()
        status = {each["name"]: each for each in running.status()["listeners"]}
        assert [each["upstreams"][0]["address"] for each in status.values()] == [f"{HOST}:{two}"] * 2
        with running.reach(int(status["added"]["addresses"][0].rpartition(":")[2])) as new:
            new.sendall(b"new")
            assert new.recv(3) == b"new"
        works(stays, b"open ones go on")
        file.write_text(good(two, HOST))
        running.reload()
        assert [each["name"] for each in running.status()["listeners"]] == ["front"]
