"""An emulated network path between the two ends of a tunnel."""

import contextlib
import json
import select
import subprocess
from collections.abc import Callable, Iterator

from watm_test_support.wgclient import BINARY

HOST = "127.0.0.1"
# Seconds for an answer of the relay.
_ANSWER = 20


class Path:
    """A running relay of datagrams, `wgclient path`. Use `path`."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process
        self.port: int = self._answer()["listen_port"]

    @property
    def address(self) -> str:
        """The address that the client sends to."""
        return f"{HOST}:{self.port}"

    def change(self, *options: str) -> None:
        """Sets flags of `wgclient path` for future datagrams. The other flags stay as they are."""
        self._process.stdin.write(" ".join(options) + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> dict:
        ready, _, _ = select.select([self._process.stdout], [], [], _ANSWER)
        line = self._process.stdout.readline() if ready else ""
        assert line, f"{self._process.args} does not answer"
        return json.loads(line)


@contextlib.contextmanager
def path(to: int, *options: str, inside: Callable[..., list] = lambda *command: list(command)) -> Iterator[Path]:
    """Relays datagrams to a UDP port of this machine and back for the length of the block.
    `options` are flags of `wgclient path`; `inside` makes the command that runs another in a
    namespace."""
    command = inside(BINARY, "path", "--direct", "--timeout", "0", "--to", f"{HOST}:{to}", *options)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Path(process)
    finally:
        process.kill()
        process.communicate()
