"""Programs and ports of the tests."""

import contextlib
import http.server
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable

# Seconds.
START = 60


class Application(http.server.BaseHTTPRequestHandler):
    """Serves answers with as many bytes as the path says."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"x" * int(self.path[1:])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def begin(
    stack: contextlib.ExitStack, folder: pathlib.Path, name: str, command: tuple[object, ...]
) -> subprocess.Popen:
    """Runs a program in this folder, with its output in a file there, until the stack closes."""
    log = stack.enter_context((folder / f"{name}.log").open("w"))
    program = subprocess.Popen(
        [str(part) for part in command],
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=os.environ | {"HOME": str(folder)},
    )
    stack.callback(program.wait, START)
    stack.callback(program.terminate)
    return program


def wait_for(what: Callable[[], object], why: Callable[[], str]) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + START
    while not what():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def fetch(url: str, *options: str) -> int:
    """Returns the bytes that curl gets."""
    command = ["curl", "--silent", "--show-error", "--fail", "--max-time", "30", *options, url]
    return len(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
