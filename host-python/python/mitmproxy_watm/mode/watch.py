"""Whether a file is another one than it was."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

INTERVAL = 0.5
"""Seconds between two looks. A file is taken when two in a row saw the same, so that one that is
still being written is left alone."""


Mark = tuple[int, int, int] | None
"""By what a file is told from another, or from itself before it was written."""


async def changes(path: Path, known: Mark) -> AsyncIterator[None]:
    """Once for each time that there is another file at `path` than the one with the mark `known`,
    or that it has been written.

    It is told by its size, its number and its time, and not read. A file that goes away is waited
    for.
    """
    seen = known
    while True:
        await asyncio.sleep(INTERVAL)
        now = await asyncio.to_thread(mark, path)
        if now is not None and now == seen and now != known:
            known = now
            yield
        seen = now


def mark(path: Path) -> Mark:
    """The file's mark, to be taken before it is read. None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
