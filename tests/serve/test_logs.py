"""Checks that the standard error of `watm` has the log and nothing else."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES, WATM
from watm_test_support.watm_serve import HOST, LIMIT, connect

from .behind import echo

ENVIRONMENT = os.environ | {"WATM_MODULES": str(MODULES)}


class Logging:
    """A process and its log in JSON. Use `logging`."""

    def __init__(self, process: subprocess.Popen, log: pathlib.Path) -> None:
        self.process, self.log = process, log

    def records(self) -> list[dict]:
        """Returns all records. A line that is not JSON fails the test."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def wait_for(self, message: str, level: str = "INFO") -> dict:
        """Waits for the record whose message contains a text."""
        end = time.monotonic() + LIMIT
        while True:
            found = [record for record in self.records() if message in record["message"]]
            if found:
                assert found[0]["level"] == level, found[0]
                return found[0]
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)

    def end(self, status: int = 0) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LIMIT) == status, self.log.read_text()
        for record in self.records():
            assert {"timestamp", "level", "target", "message"} <= record.keys()


@contextlib.contextmanager
def logging(folder: pathlib.Path, *command: object) -> Iterator[Logging]:
    """Runs `watm` with these arguments for the length of the block."""
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [str(part) for part in (WATM, *command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=folder,
            env=ENVIRONMENT | {"HOME": str(folder)},
        )
    try:
        yield Logging(process, folder / "log")
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


@pytest.fixture
def module(tmp_path) -> pathlib.Path:
    """Makes a copy of a module, which a test may replace."""
    return shutil.copy(MODULES / "plain.wasm", tmp_path / "module.wasm")


@pytest.mark.parametrize("level", ["off", "trace"])
@pytest.mark.parametrize("command", ["listen", "dial", "relay"])
def test_every_line_of_a_command_is_json(command, level, module, tmp_path):
    with echo() as upstream:
        to = f"{HOST}:{upstream}"
        arguments = {
            "listen": (f"{HOST}:0", "--forward", to),
            "dial": (to, "--listen", f"{HOST}:0"),
            "relay": (f"{HOST}:0", to),
        }[command]
        options = ("--unsealed", "--log-format", "json", "--log", level)
        follow = () if command == "relay" else ("--watch",)
        with logging(tmp_path, command, *options, module, *arguments, *follow) as running:
            address = running.wait_for("listening on ")["address"]
            with connect(int(address.rpartition(":")[2])) as client:
                client.sendall(b"hello")
                assert client.recv(5) == b"hello"
                if follow:
                    module.write_bytes(b"no module")
                    running.wait_for("keeping the previous module", "ERROR")
                    shutil.copy(MODULES / "plain.wasm", module)
                    assert running.wait_for(f"swapped in {module}")["module"] == str(module)
                running.end()


def test_every_line_of_a_tunnel_is_json(tmp_path):
    config = tmp_path / "wg0.conf"
    key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEA="
    config.write_text(
        f"[Interface]\nPrivateKey = {key}\nAddress = 10.7.0.2/32\nPostUp = true\n"
        f"[Peer]\nPublicKey = {key[:-3]}EE=\nAllowedIPs = 0.0.0.0/0\nEndpoint = {HOST}:{free_port()}\n"
    )
    listeners = ("--socks5", f"{HOST}:0", "--status", f"{HOST}:0", "--forward", f"tcp:0.0.0.0:0={HOST}:1")
    with logging(tmp_path, "tunnel", "--unsealed", "--log-format", "json", config, *listeners) as running:
        assert running.wait_for("listening on ")["what"]
        assert running.wait_for("status on ")["address"]
        running.wait_for("anyone who can reach this port can use it", "WARN")
        running.end()


def test_every_line_of_serve_is_json(module, tmp_path):
    with echo() as upstream:
        config = tmp_path / "serve.toml"
        good = (
            f'[logs]\nformat = "json"\n[metrics]\nlisten = "{HOST}:0"\n[drain]\ntimeout = 0.2\n'
            f'[[listener]]\nname = "front"\nmodule = "{module}"\naddresses = ["{HOST}:0"]\n'
            f'upstream = "{HOST}:{upstream}"\nworkers = 2\n'
        )
        config.write_text(good)
        with logging(tmp_path, "serve", "--unsealed", "--watch", config) as running:
            address = running.wait_for("listening on ")["address"]
            assert running.wait_for("metrics on ")["address"]
            config.write_text("nonsense")
            running.process.send_signal(signal.SIGHUP)
            running.wait_for("keeping the previous configuration", "ERROR")
            config.write_text(good)
            running.process.send_signal(signal.SIGHUP)
            assert running.wait_for("reloaded ")["file"] == str(config)
            module.write_bytes(b"no module")
            running.wait_for("keeping the previous module", "ERROR")
            with connect(int(address.rpartition(":")[2])) as client:
                client.sendall(b"hello")
                assert client.recv(5) == b"hello"
                running.end(status=1)
            running.wait_for("draining")
            assert running.wait_for("did not end in time", "WARN")["connections"] == 1


def broken(folder: pathlib.Path) -> pathlib.Path:
    path = folder / "broken.toml"
    path.write_text('[logs]\nformat = "json"\n[[listener]]\nlisten = 1\n')
    return path


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (lambda _: ("listen", "--log-format", "json", "--nonsense"), "unexpected argument '--nonsense'"),
        (lambda _: ("listen", "--log-format=json"), "<MODULE>"),
        (lambda _: ("dial", "--log-format", "json", MODULES / "plain.wasm", f"{HOST}:1"), "sealed"),
        (lambda _: ("tunnel", "/nonexistent", "--stdio", "a:1", "--log-format", "json"), "/nonexistent"),
        (lambda _: ("serve", "/nonexistent", "--log-format", "json"), "/nonexistent"),
        (lambda folder: ("serve", broken(folder)), "broken.toml: line "),
        (lambda folder: ("update", folder / "new.wasm", "--to", "old.wasm", "--log-format", "json"), "root"),
    ],
)
def test_the_reason_why_nothing_starts_is_json(command: Callable[[pathlib.Path], tuple], reason, tmp_path):
    with logging(tmp_path, *command(tmp_path)) as running:
        assert running.process.wait(LIMIT) == 2
        (record,) = running.records()
        assert (record["level"], record["target"]) == ("ERROR", "watm::program")
        assert reason in record["message"]


def test_an_option_of_a_plugin_that_is_wrong_is_json(tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "SS_REMOTE_HOST", HOST)
    monkeypatch.setitem(ENVIRONMENT, "SS_PLUGIN_OPTIONS", "log-format=json;nonsense")
    with logging(tmp_path) as running:
        assert running.process.wait(LIMIT) == 2
        (record,) = running.records()
        assert '"nonsense": no such option' in record["message"]


def test_an_unsealed_module_is_warned_about_once(module, tmp_path):
    """Checks three listeners, also after a reload."""
    with echo() as upstream:
        listener = (
            f'[[listener]]\nmodule = "{module}"\naddresses = ["{HOST}:0"]\nupstream = "{HOST}:{upstream}"\nworkers = 1\n'
        )
        config = tmp_path / "serve.toml"
        config.write_text('[logs]\nformat = "json"\n' + "".join(f'{listener}name = "{n}"\n' for n in range(3)))
        with logging(tmp_path, "serve", "--unsealed", config) as running:
            running.wait_for("listening on ")
            running.process.send_signal(signal.SIGHUP)
            running.wait_for("reloaded ")
            running.end()
            warnings = [record for record in running.records() if record["target"] == "watm::trust"]
            assert len(warnings) == 1, warnings
            assert warnings[0]["module"] == str(module)


def test_a_destination_that_is_refused_says_what_would_allow_it_but_does_not_fill_the_log(tmp_path):
    config = tmp_path / "serve.toml"
    config.write_text(
        f'[logs]\nformat = "json"\n[[listener]]\nname = "front"\nmodule = "{MODULES / "proxy-protocol.wasm"}"\n'
        f'config = \'from = "{HOST}"\'\naddresses = ["tcp://{HOST}:0"]\nupstream = "dynamic"\nallow = ["192.0.2.1:1"]\nworkers = 1\n'
    )
    with logging(tmp_path, "serve", "--unsealed", config) as running:
        port = int(running.wait_for("listening on ")["address"].rpartition(":")[2])

        def ask(destination: str) -> None:
            with connect(port) as client, contextlib.suppress(ConnectionResetError):
                client.sendall(f"PROXY TCP4 203.0.113.7 {destination} 5000 80\r\n".encode())
                assert client.recv(1) == b""

        for _ in range(5):
            ask("198.51.100.1")
        for number in range(40):
            ask(f"198.51.100.{100 + number}")
        running.end()
        hints = [record for record in running.records() if record["target"] == "watm::server"]
        assert {record["level"] for record in hints} == {"INFO"}
        assert len(hints) == 10
        assert 'the pattern "198.51.100.1:80" in allow (--allow) would allow it' in hints[0]["message"]
        assert [record["destination"] for record in hints[:2]] == ["198.51.100.1:80", "198.51.100.100:80"]
        assert [record["suppressed"] for record in hints] == [0, 4] + 8 * [0]
