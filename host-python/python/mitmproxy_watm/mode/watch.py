"""Whether a file is another one than it was."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

INTERVAL = 0.5
"""Seconds between two looks. A file is taken when two in a row saw the same, so that one that is
still being written is left alone."""


async def changes(path: Path) -> AsyncIterator[None]:
    """Once for each time that there is another file at `path`, or that it has been written.

    It is told by its size, its number and its time, and not read. A file that goes away is waited
    for.
    """
    known = seen = await asyncio.to_thread(_mark, path)
    while True:
        await asyncio.sleep(INTERVAL)
        now = await asyncio.to_thread(_mark, path)
        if now is not None and now == seen and now != known:
            known = now
            yield
        seen = now


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
