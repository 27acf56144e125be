"""The approval prompt on a terminal, at the first run of a module that asks for capabilities."""

import contextlib
import errno
import os
import pathlib
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from watm_test_support.repository import ROOT, WATM

from .authority import EXPIRES, Authority, done, watm

PLAIN = ROOT / "watm/target/modules/plain.watm1.wasm"
QUESTION = "Approve this, now and for later releases? [y/N] "
# Seconds.
LIMIT = 30


class Terminal:
    """A program whose three standard streams are a terminal."""

    def __init__(self, *arguments: object) -> None:
        self.screen, theirs = pty.openpty()
        command = [str(WATM), *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        self.said = ""

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + LIMIT
        while text not in self.said:
            assert self.read(deadline), f"{text!r} is not in {self.said!r}"

    def read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.screen], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"nothing came after {self.said!r}"
        try:
            part = os.read(self.screen, 4096)
        except OSError as e:  # Linux reports the other end's close this way
            assert e.errno == errno.EIO
            part = b""
        self.said += part.decode().replace("\r\n", "\n")
        return bool(part)

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def ended(self) -> int:
        deadline = time.monotonic() + LIMIT
        while self.read(deadline):
            pass
        return self.process.wait(LIMIT)


@contextlib.contextmanager
def terminal(*arguments: object) -> Iterator[Terminal]:
    running = Terminal(*arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait(LIMIT)
        os.close(running.screen)


@pytest.fixture
def command(authority: Authority, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Runs a relay through a module that is not approved."""
    for variable, folder in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(variable, str(tmp_path / folder))
    done("trust", authority.root)
    may = {"connect": ["tcp://*.example.com:443"], "memory-bytes": 1 << 27, "cpu-permille": 500}
    may |= {"flows": 7, "instances": 100}
    module = tmp_path / "plain.wasm"
    shape = {"world": "water-v1", "roles": ["relay", "dialer", "listener"]} | EXPIRES
    module.write_bytes(authority.seal_body(PLAIN.read_bytes(), "1.1", capabilities=may, **shape))
    return ["relay", module, "127.0.0.1:0", "127.0.0.1:9"]


def test_whoever_says_yes_is_not_asked_again(command: list[object]) -> None:
    with terminal(*command) as asked:
        asked.wait_for(QUESTION)
        for part in ("wireguard 1.1 asks for", "*.example.com:443", "7"):
            assert part in asked.said, asked.said
        asked.type("y\n")
        asked.wait_for("listening on ")
        asked.process.send_signal(signal.SIGTERM)
        assert asked.ended() == 0
    with terminal(*command) as again:
        again.wait_for("listening on ")
        assert QUESTION not in again.said
    # The approval can be revoked.
    done("trust", "--revoke", "wireguard")
    with terminal(*command) as asked:
        asked.wait_for(QUESTION)


@pytest.mark.parametrize("answer", ["n\n", "\n", "yes please\n", "Y E S\n", "\x04"])
def test_all_else_is_a_no(command: list[object], answer: str) -> None:
    with terminal(*command) as asked:
        asked.wait_for(QUESTION)
        asked.type(answer)
        assert asked.ended() == 2
        assert "plain.wasm: is not approved" in asked.said
        assert "listening" not in asked.said
    assert "approved" not in done("trust"), "nothing is remembered"


def test_nobody_is_asked_who_is_not_there(command: list[object]) -> None:
    run = watm(*command)
    assert run.returncode == 2 and run.stderr.count("\n") == 1, run.stderr
    assert "watm trust --approve" in run.stderr and QUESTION not in run.stderr
    # Standard input carries data here.
    with terminal("dial", command[1], "127.0.0.1:9") as running:
        assert running.ended() == 2
        assert QUESTION not in running.said


def test_the_file_that_was_shown_is_the_one_that_runs(
    command: list[object], authority: Authority, tmp_path: pathlib.Path
) -> None:
    module = tmp_path / "plain.wasm"
    shape = {"world": "water-v1", "roles": ["relay", "dialer", "listener"]} | EXPIRES
    more = {"connect": ["tcp://*:*"], "memory-bytes": 1 << 27, "cpu-permille": 1000, "flows": 7, "instances": 100}
    other = authority.seal_body(PLAIN.read_bytes(), "1.2", capabilities=more, **shape)
    with terminal(*command) as asked:
        asked.wait_for(QUESTION)
        module.write_bytes(other)
        asked.type("y\n")
        assert asked.ended() == 2
    assert "approved" not in done("trust")
