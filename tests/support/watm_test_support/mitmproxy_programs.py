"""mitmproxy's programs as processes, with the observer addon in them."""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from watm_test_support.wgclient import WgClient
from watm_test_support.wireguard_server import Keys

BIN = Path(sys.executable).parent
OBSERVER = Path(__file__).with_name("observer.py")
# Seconds to wait for a line, unless a test says otherwise.
_PATIENCE = 60


class Program:
    """A running program, with its lines. Use `start`."""

    def __init__(self, process: asyncio.subprocess.Process, patience: float) -> None:
        self.process = process
        self._patience = patience
        self.lines: list[str] = []
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def wait_for(self, pattern: str) -> re.Match[str]:
        """Returns the first match in its output so far, or in time. Fails at once if it ends without one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while not self._reading.done() and not re.search(pattern, self.text):
                    self._news.clear()
                    await self._news.wait()
        match = re.search(pattern, self.text)
        assert match, f"{pattern!r} is not in:\n{self.text}"
        return match

    async def port(self) -> int:
        """Returns the port of its first WireGuard server."""
        return int((await self.wait_for(r"WireGuard server listening at .*:(\d+)")).group(1))

    async def ended(self) -> int:
        """Waits for its end, and returns the exit code."""
        await self._reading
        return await self.process.wait()

    async def ask(self, **request: Any) -> Any:
        """Sends a request to the observer, see observer.py. Returns the result or the error."""
        before = len(self.notes("answer"))
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        await self.process.stdin.drain()
        while len(answers := self.notes("answer")) == before:
            await asyncio.sleep(0.01)
        return answers[-1]["answer"]

    async def flow(self, **facts: Any) -> dict[str, Any]:
        """Returns the first flow with these facts."""
        while True:
            self._news.clear()
            for note in self.notes("flow"):
                if facts.items() <= note.items():
                    return note
            if self._reading.done():
                raise AssertionError(f"no flow with {facts} in:\n{self.text}")
            await self._news.wait()

    def notes(self, kind: str) -> list[dict[str, Any]]:
        """Returns the observer's notes of one kind."""
        notes = (json.loads(line.partition("NOTE ")[2]) for line in self.lines if "NOTE " in line)
        return [note for note in notes if kind in note]

    @property
    def text(self) -> str:
        """Returns the whole output."""
        return "\n".join(self.lines)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.lines.append(line.decode().rstrip("\n"))
            self._news.set()
        self._news.set()


@contextlib.asynccontextmanager
async def start(program: str, confdir: Path, *arguments: str, observed: bool = True, patience: float = _PATIENCE) -> AsyncIterator[Program]:
    """Runs a program of this Python's environment, or of any by its path, until the block ends."""
    observer = ["-s", str(OBSERVER)] if observed else []
    process = await asyncio.create_subprocess_exec(
        str(BIN / program),
        "--set",
        f"confdir={confdir}",
        *arguments,
        *observer,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 22,
    )
    running = Program(process, patience)
    try:
        yield running
    finally:
        assert process.stdin is not None
        process.stdin.close()  # the observer has a thread that reads it
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(10):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await process.stdin.wait_closed()
        await running._reading


def keys_in(confdir: Path) -> Keys:
    """Returns the keys that a program made in its folder."""
    content = json.loads((confdir / "wireguard.conf").read_text())
    return Keys(content["server_key"], content["client_key"])


def client(confdir: Path, port: int, host: str = "127.0.0.1", **flags: Any) -> contextlib.AbstractAsyncContextManager[WgClient]:
    """Starts the client that belongs to a program's WireGuard server on this port."""
    return WgClient.start(**keys_in(confdir).client_options(port, host), **flags)
