"""Archives whose bytes follow from their content: sorted, and with one time."""

import gzip
import io
import tarfile
import time
import zipfile
from collections.abc import Iterable

from project import File

LEVEL = 9
"""The level of compression, which takes most of the time."""


def tar(files: Iterable[File], date: int) -> bytes:
    """A tar archive, with the folders above each file."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        folders: set[str] = set()
        for file in sorted(files, key=lambda file: file.path):
            parts = file.path.split("/")[:-1]
            for depth in range(1, len(parts) + 1):
                folder = "/".join(parts[:depth])
                if folder not in folders and folder != ".":
                    folders.add(folder)
                    owner = file.owner if depth == len(parts) else 0
                    archive.addfile(_entry(folder, 0o755, date, owner, tarfile.DIRTYPE))
            entry = _entry(file.path, file.mode, date, file.owner, tarfile.REGTYPE)
            entry.size = len(file.content)
            archive.addfile(entry, io.BytesIO(file.content))
    return output.getvalue()


def _entry(path: str, mode: int, date: int, owner: int, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.mtime, entry.uid, entry.gid = kind, mode, date, owner, owner
    return entry


def compress(content: bytes) -> bytes:
    """The content in gzip's format, without a name and a time."""
    return gzip.compress(content, compresslevel=LEVEL, mtime=0)


def pack(files: Iterable[File], date: int) -> bytes:
    """A zip archive."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for file in files:
            # A zip knows no earlier time.
            entry = zipfile.ZipInfo(file.path, max(time.gmtime(date)[:6], (1980, 1, 1, 0, 0, 0)))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100000 | file.mode) << 16
            archive.writestr(entry, file.content)
    return output.getvalue()


def ar(members: Iterable[tuple[str, bytes]], date: int) -> bytes:
    """An archive in the format of ar(5), with short names."""
    output = bytearray(b"!<arch>\n")
    for name, content in members:
        output += f"{name:<16}{date:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        output += content + b"\n" * (len(content) % 2)
    return bytes(output)
