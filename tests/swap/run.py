"""Swaps under the load of a real WireGuard client, whose traffic must continue."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from mitmproxy_watm import load_module
from mitmproxy_watm.modules import Module
from tests.swap import load
from watm_test_support import web_services
from watm_test_support.tunnels import V4, Peer, serving


@dataclass
class Result:
    """The outcome of a run."""

    parts: dict[str, load.Part]
    swaps: int
    generation: int
    left: int
    """The number of generations at the end, besides the one that serves."""
    served: list[float]
    """For each swap, the seconds until a new flow went to the new generation."""

    @property
    def errors(self) -> list[str]:
        """Errors, each with its place."""
        return [f"{name}: {error}" for name, part in self.parts.items() for error in part.errors]


def marked(module: bytes, mark: int) -> bytes:
    """Returns the same module as another file, with a custom section at its end (WebAssembly 5.5.3)."""
    content = b"\x04mark" + bytes([mark])
    return module + b"\x00" + bytes([len(content)]) + content


async def run(
    seconds: float,
    swaps: int,
    module: bytes,
    *,
    probation: float = 1.0,
    said: Callable[[str], None] = lambda text: None,
) -> Result:
    """Runs the load for a time, with swaps back and forth between two modules."""
    modules: list[Module] = [await load_module(marked(module, mark), unsealed=True) for mark in (0, 1)]
    peer = Peer()

    async def handle(stream) -> None:
        port = stream.get_extra_info("sockname")[1]
        await (load.serve if port in (load.DOWNLOAD, load.SHELL) else web_services.handle_tcp)(stream)

    until = asyncio.Event()
    served: list[float] = []
    async with serving(peer, handle_tcp=handle, module=modules[1]) as running, running.client(peer) as client:
        kinds = {
            "download": load.download,
            "shell": load.shell,
            "HTTP requests": load.requests,
            "UDP echo": load.echoes,
        }
        tasks = {name: asyncio.create_task(kind(client, V4, until)) for name, kind in kinds.items()}
        begin = time.monotonic()
        for number in range(swaps):
            await asyncio.sleep(max(0.0, begin + seconds * (number + 0.5) / swaps - time.monotonic()))
            asked = time.monotonic()
            swapping = asyncio.create_task(running.server.swap(modules[number % 2], probation=probation))
            while not any(
                known.number == number + 1 and known.flows for known in running.server.status().generations
            ):
                if swapping.done():
                    break
                await asyncio.sleep(0.005)
            served.append(time.monotonic() - asked)
            generation = await swapping
            said(f"generation {generation} serves; its first flow after {served[-1] * 1000:.0f} ms")
        await asyncio.sleep(max(0.0, begin + seconds - time.monotonic()))
        generations = running.server.status().generations
        until.set()
        parts = {name: await task for name, task in tasks.items()}
        return Result(parts, swaps, running.server.status().generation, len(generations) - 1, served)
