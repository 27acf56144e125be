"""`watm serve` as a process that a test watches, reconfigures and ends."""

import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

from watm_test_support.repository import WATM

HOST = "127.0.0.1"
# Seconds for one step.
LIMIT = 10

# A home without settings, shared so that a module is compiled only once.
HOME = tempfile.TemporaryDirectory()


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), LIMIT)


def _text(line: str) -> str:
    """Returns a line as text: in JSON, the message of a record of the program itself. The line may be incomplete."""
    with contextlib.suppress(ValueError):
        record = json.loads(line)
        if record["target"] == "watm::program":
            return ("" if record["level"] == "INFO" else "watm: ") + record["message"] + "\n"
    return line


class Serving:
    """A running `watm serve`. Use `serving`."""

    def __init__(self, process: subprocess.Popen, folder: pathlib.Path, reach: Callable[[int], socket.socket]) -> None:
        self.process, self.folder, self.reach = process, folder, reach

    def log(self) -> str:
        return (self.folder / "watm.log").read_text()

    def said(self) -> str:
        """Returns the log. Records of the program itself are text in every format."""
        return "".join(_text(line) for line in self.log().splitlines(keepends=True))

    def wait_for(self, pattern: str) -> re.Match:
        """Waits until the log matches this pattern."""
        end = time.monotonic() + LIMIT
        while not (found := re.search(pattern, self.said(), re.MULTILINE)):
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log()}"
            assert time.monotonic() < end, f"no {pattern!r} within {LIMIT} s in\n{self.log()}"
            time.sleep(0.02)
        return found

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits until the condition holds."""
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, f"not within {LIMIT} s:\n{self.log()}"
            time.sleep(0.05)

    def ports(self) -> list[int]:
        """Returns the ports of its listeners, in their order."""
        return [int(port) for port in re.findall(r"^listening on .*:(\d+)$", self.said(), re.MULTILINE)]

    @property
    def port(self) -> int:
        return self.ports()[0]

    def reload(self, answer: str = "^reloaded ") -> None:
        """Makes it reload its configuration, and waits for another match in the log."""
        before = len(re.findall(answer, self.said(), re.MULTILINE))
        self.process.send_signal(signal.SIGHUP)
        self.wait_for(rf"(?s)({answer}.*){{{before + 1}}}")

    def page(self, path: str, host: str = "localhost") -> tuple[int, str]:
        """Returns the status and the text of one of its pages."""
        with self.reach(int(self.wait_for(r"^metrics on .*:(\d+)$")[1])) as web:
            web.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: web.recv(65536), b"")).decode()
        head, _, body = answer.partition("\r\n\r\n")
        return int(head.split()[1]), body

    def metric(self, pattern: str) -> float:
        """Returns the value of the metric whose line matches this pattern."""
        text = self.page("/metrics")[1]
        found = re.search(rf"^{pattern}\S* (\S+)$", text, re.MULTILINE)
        assert found, f"no {pattern} in\n{text}"
        return float(found.group(1))

    def status(self) -> dict:
        return json.loads(self.page("/status")[1])

    def records(self, count: int) -> list[dict]:
        """Returns the records of connections in JSON, once there are `count`."""
        self.wait_for(rf'(?s)("watm::connection".*){{{count}}}')
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        records = [line for line in lines if line["target"] == "watm::connection"]
        assert len(records) == count, self.log()
        return records

    def record(self) -> dict:
        """Returns the record of the only connection."""
        return self.records(1)[0]

    def end(self) -> int:
        """Ends it and returns its exit status."""
        self.process.terminate()
        return self.process.wait(LIMIT)


@contextlib.contextmanager
def serving(
    folder: pathlib.Path,
    config: str,
    *options: object,
    inside: Callable[..., list] = lambda *command: list(command),
    reach: Callable[[int], socket.socket] = connect,
    descriptors: int | None = None,
    kind: type[Serving] = Serving,
) -> Iterator[Serving]:
    """Runs it with this configuration, of which a copy is in `folder`, for the length of the block.
    It must still run at the end, unless the test has ended it."""
    folder.mkdir(exist_ok=True)
    (folder / "serve.toml").write_text(config)
    command = inside(WATM, "serve", "--unsealed", folder / "serve.toml", *options)
    limit = None
    if descriptors is not None:
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))  # noqa: E731
    with open(folder / "watm.log", "w") as log:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=limit,
            env={**os.environ, "HOME": HOME.name},
        )
    running = kind(process, folder, reach)
    try:
        running.wait_for("^listening on ")
        # These lines come before the address of its metrics.
        if "[metrics]" in config:
            running.wait_for("^metrics on ")
        yield running
        asked = process.returncode is not None
        assert asked or process.poll() is None, f"ended with {process.returncode}:\n{running.log()}"
    finally:
        process.terminate()
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
