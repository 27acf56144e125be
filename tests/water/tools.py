"""The two programs that load modules, behind one interface."""

import asyncio
import contextlib
import os
import pathlib
import re
from collections.abc import AsyncIterator, Callable

from watm_test_support.repository import ROOT

from .ends import LIMIT, End
from .modules import Module

_BUILD = ROOT / "build"


class Running:
    """A program and its standard error."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._said = ""
        self._silent = False
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())
        self.address = ""

    def said(self) -> str:
        """Returns the output so far."""
        return self._said

    async def wait_for(self, condition: Callable[[str], object], what: str) -> object:
        """Waits until `condition` of the output holds, and returns its result."""
        async with asyncio.timeout(LIMIT):
            async with self._news:
                while not (held := condition(self._said)):
                    if self._silent:
                        raise AssertionError(f"the program has ended without {what}: {self._said}")
                    await self._news.wait()
                return held

    async def exit_code(self) -> int:
        """Waits until the program ends by itself."""
        async with asyncio.timeout(LIMIT):
            await self._reader
            return await self._process.wait()

    async def stop(self) -> None:
        """Ends the program."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(LIMIT):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reader

    async def _read(self) -> None:
        while data := await self._process.stderr.read(65536):
            async with self._news:
                self._said += data.decode(errors="replace")
                self._news.notify_all()
        async with self._news:
            self._silent = True
            self._news.notify_all()


class Dialled(Running, End):
    """A program whose standard input and output are a connection."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        Running.__init__(self, process)
        End.__init__(self, process.stdout, process.stdin)


GODEBUG = "cpu.fsrm=off"
"""Go 1.26 copies memory with REP MOVSB on processors that do so quickly for short copies. Code that wazero
1.7.3 compiles calls that copy and loses registers, which a module sees as an access out of bounds."""


class Tool:
    """A program that loads modules: `gowater` or `watm`."""

    def __init__(self, name: str, program: pathlib.Path, fixed: list[str], loading: tuple[str, ...] = ()) -> None:
        self.name = name
        self._program = program
        # The arguments for a fixed dialer.
        self._fixed = fixed
        # The arguments for a module without a seal.
        self._loading = loading

    def __str__(self) -> str:
        return self.name

    @contextlib.asynccontextmanager
    async def dial(self, module: Module, to: str, *flags: str | pathlib.Path) -> AsyncIterator[Dialled]:
        """Opens a connection through the module."""
        async with self._run(["dial", *self._loading, module.path, to, *flags]) as process:
            running = Dialled(process)
            try:
                yield running
            finally:
                await running.stop()

    @contextlib.asynccontextmanager
    async def fixed(self, module: Module, *flags: str | pathlib.Path) -> AsyncIterator[Dialled]:
        """Opens a connection to the module's own destination."""
        command, *rest = self._fixed
        async with self._run([command, *self._loading, module.path, *rest, *flags]) as process:
            running = Dialled(process)
            try:
                yield running
            finally:
                await running.stop()

    @contextlib.asynccontextmanager
    async def listen(self, module: Module, forward: str, *flags: str | pathlib.Path) -> AsyncIterator[Running]:
        """Runs a server that forwards the decoded data by plain TCP."""
        async with self._serve(["listen", *self._loading, module.path, "127.0.0.1:0", "--forward", forward, *flags]) as running:
            yield running

    @contextlib.asynccontextmanager
    async def relay(self, module: Module, to: str, *flags: str | pathlib.Path) -> AsyncIterator[Running]:
        """Runs a relay."""
        async with self._serve(["relay", *self._loading, module.path, "127.0.0.1:0", to, *flags]) as running:
            yield running

    def port(self, module: Module) -> int:
        """Returns the port that a server needs for a module that chooses its destination; 0 for any."""
        return 0

    def lead(self, module: Module, to: str, folder: pathlib.Path) -> list[str]:
        """Returns the flags that direct a module that chooses its destination to an address."""
        if not module.own:
            return self._lead_others(module, to)
        config = folder / "module.conf"
        config.write_text(f'remote = "{to}"\n')
        return [f"--config={config}", f"--allow={to}"]

    def _lead_others(self, module: Module, to: str) -> list[str]:
        return [f"--allow={module.destination}"]

    async def settled(self, running: Running, connections: int) -> None:
        """Waits until one of this many connections of a server may close."""

    @contextlib.asynccontextmanager
    async def _serve(self, arguments: list[str | pathlib.Path]) -> AsyncIterator[Running]:
        async with self._run(arguments) as process:
            running = Running(process)
            try:
                said = await running.wait_for(re.compile(r"listening on (\S+)\n").search, "an address")
                running.address = said[1]
                yield running
            finally:
                await running.stop()

    @contextlib.asynccontextmanager
    async def _run(self, arguments: list[str | pathlib.Path]) -> AsyncIterator[asyncio.subprocess.Process]:
        assert self._program.exists(), f"{self._program} is missing: make test-water builds it"
        # The Go runtime keeps compiled modules in the folder for temporary files.
        temporary = _BUILD / "water"
        temporary.mkdir(parents=True, exist_ok=True)
        yield await asyncio.create_subprocess_exec(
            self._program,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(temporary), "GODEBUG": GODEBUG},
        )


class _GoTool(Tool):
    """The Go runtime crashes when it makes one instance while it closes another, and it makes
    the next one as soon as a connection was accepted."""

    def _lead_others(self, module: Module, to: str) -> list[str]:
        return [f"--allow={module.destination}", f"--redirect={module.destination}={to}"]

    async def settled(self, running: Running, connections: int) -> None:
        await running.wait_for(lambda said: said.count("waiting\n") > connections, "another instance")


GO = _GoTool("go", _BUILD / "gowater", ["fixed"])


class _OwnTool(Tool):
    """`watm`, which uses a module's destination unchanged."""

    def port(self, module: Module) -> int:
        return 0 if module.own else int(module.destination.rpartition(":")[2])


WATM = _OwnTool("watm", ROOT / "target" / "release" / "watm", ["dial", "--fixed"], ("--unsealed",))
