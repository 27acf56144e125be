"""The memory of modules, as the kernel shows it."""

import pathlib
import re

GUARD = 1 << 30
"""The size of the reservation behind a linear memory, which can grow up to 4 GiB."""

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)")


def of_modules(process: int) -> list[bytes]:
    """Returns the linear memories of a process: writable ranges before a large reserved one."""
    found: list[bytes] = []
    maps = pathlib.Path(f"/proc/{process}/maps").read_text().splitlines()
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        begin = far = 0
        for start, end, rights, name in (match.groups() for line in maps if (match := _LINE.match(line))):
            low, high = int(start, 16), int(end, 16)
            if rights.startswith("rw-") and (not name or "wasm-memory" in name):
                # A memory has several ranges if some of its pages are unchanged since the start.
                begin, far = (begin if low == far else low), high
            else:
                if low == far and rights.startswith("---") and high - low >= GUARD:
                    memory.seek(begin)
                    found.append(_all(memory, far - begin))
                begin = far = 0
    return found


def _all(memory, length: int) -> bytes:
    pieces = []
    while length > 0 and (piece := memory.read(length)):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
