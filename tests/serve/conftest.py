"""The listeners and programs of these tests, which end with them."""

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
    """The port of an HTTP server."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Application)
    threading.Thread(target=server.serve_forever).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts programs, whose output goes to files named after them."""
    with contextlib.ExitStack() as stack:
        yield lambda name, *command: begin(stack, tmp_path, name, command)
