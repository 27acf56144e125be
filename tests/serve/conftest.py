"""Listeners and programs that end with a test."""

import contextlib
import http.server
import pathlib
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

from .programs import Application, begin


@pytest.fixture
def application() -> Iterator[int]:
    """Runs an HTTP server. Yields its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Application)
    threading.Thread(target=server.serve_forever).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts programs, and writes their output to files with their names."""
    with contextlib.ExitStack() as stack:
        yield lambda name, *command: begin(stack, tmp_path, name, command)
