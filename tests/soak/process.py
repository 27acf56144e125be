"""The server's process, and its resources according to the kernel."""

import asyncio
import contextlib
import json
import os
import pathlib
import sys
from collections.abc import AsyncIterator

# Seconds. A module that is not in the cache is compiled first.
_START = 60
_ANSWER = 10
# Counts of the descriptors for one sample.
_COUNTS = 5


class ServerProcess:
    """A running server.py. Use `started`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ports: dict[str, int] = {}
        """The ports of `server` and `guest`."""

    async def holds(self) -> dict:
        """Returns the servers' report of their resources."""
        return await self.ask("", _ANSWER)

    async def ask(self, line: str, seconds: float) -> dict:
        """Sends a line and returns the answer."""
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()
        answer = await asyncio.wait_for(self._process.stdout.readline(), seconds)
        if not answer:
            raise RuntimeError(f"the server ended with {await self._process.wait()}")
        return json.loads(answer)

    def rss_mb(self) -> float:
        return int(self._status("VmRSS")) / 1000

    def threads(self) -> int:
        return int(self._status("Threads"))

    def descriptors(self) -> int:
        """Returns the least of several counts. The server opens a socket for an instant to ask the
        kernel for the MTU of the path to a client that has moved.
        """
        return min(len(os.listdir(f"/proc/{self._process.pid}/fd")) for _ in range(_COUNTS))

    def _status(self, field: str) -> str:
        for line in pathlib.Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return value.split()[0]
        raise RuntimeError(f"the server's process has no {field}")


@contextlib.asynccontextmanager
async def started(config: str) -> AsyncIterator[ServerProcess]:
    """Runs the server for the block."""
    program = pathlib.Path(__file__).with_name("server.py")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), stdin=pipe, stdout=pipe)
    server = ServerProcess(process)
    try:
        server.ports = await server.ask(json.dumps(config), _START)
        yield server
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()
