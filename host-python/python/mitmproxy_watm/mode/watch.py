"""Detection of changed files."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

INTERVAL = 0.5
"""The interval of checks, in seconds. A file counts once two checks in a row saw the same, so that
one that is still being written is left alone."""


Mark = tuple[int, int, int] | None
"""Properties by which a file is told from another, or from itself before a write."""


async def changes(path: Path, known: Mark) -> AsyncIterator[None]:
    """Yields each time that the file at `path` differs from the one with the mark `known`, or has
    been written.

    Compares its size, number and time, without reading it. Waits for a missing file.
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
    """Returns the file's mark, which must be taken before the file is read. None if it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
