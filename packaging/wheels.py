"""Files that every wheel has: https://packaging.python.org/en/latest/specifications/binary-distribution-format/."""

import base64
import hashlib
from collections.abc import Iterable

from project import File


def about(info: str, interpreter: str, platforms: str) -> File:
    """The file WHEEL in the folder `info`, with a tag for each of the platforms, which dots separate."""
    tags = "".join(f"Tag: {interpreter}-{platform}\n" for platform in platforms.split("."))
    return File(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: watm\nRoot-Is-Purelib: false\n{tags}".encode())


def record(info: str, files: Iterable[File]) -> File:
    """The file RECORD in the folder `info`, with the hashes of all other files."""
    lines = [f"{file.path},sha256={_digest(file.content)},{len(file.content)}" for file in files]
    return File(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,", ""]).encode())


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
