"""Module files: invalid ones, which no host accepts, and the guest that obeys commands."""

import pathlib
import socket

from watm_test_support.repository import MODULES, ROOT

WIREGUARD = MODULES / "wireguard.wasm"
# Built from tests/guests by `make build/guest.wasm`. Its source describes the commands.
GUEST = ROOT / "build" / "guest.wasm"

_ENDPOINT = "watm:transport/endpoint@0.1.0"


def bad_files(folder: pathlib.Path) -> dict[pathlib.Path, str]:
    """Makes a file of each kind in the folder. Returns each with the text of its error."""
    directory = folder / "directory.wasm"
    directory.mkdir()
    whole = WIREGUARD.read_bytes()
    contents = {
        "empty.wasm": (b"", "empty"),
        "text.wasm": (b"no module at all\n", "not WebAssembly"),
        "truncated.wasm": (whole[: len(whole) // 2], "truncated.wasm"),
        "core.wasm": (b"\0asm\1\0\0\0", "core module"),
        "imports.wasm": (component("wasi:filesystem/types@0.2.3", _ENDPOINT), "wasi:filesystem/types@0.2.3"),
        "version.wasm": (component("watm:transport/sockets@0.3.0", _ENDPOINT), "watm:transport@0.3.0"),
        "hollow.wasm": (component("watm:transport/log@0.1.0", None), "does not export"),
        "shape.wasm": (component("watm:transport/log@0.1.0", _ENDPOINT), "does not fit"),
    }
    for name, (content, _) in contents.items():
        (folder / name).write_bytes(content)
    refused = {folder / name: words for name, (_, words) in contents.items()}
    return {folder / "missing.wasm": "no such file", directory: "directory", **refused}


def component(imports: str, exports: str | None) -> bytes:
    """Returns a component (binary format 0xd) that imports one instance and exports an empty one."""
    sections = [
        (7, b"\1\x42\0"),  # one type: an instance of nothing
        (10, b"\1" + _name(imports) + b"\5\0"),
        (5, b"\1\1\0"),  # one empty instance
    ]
    if exports is not None:
        sections.append((11, b"\1" + _name(exports) + b"\5\1\0"))
    return b"\0asm\x0d\0\1\0" + b"".join(bytes([number, len(body)]) + body for number, body in sections)


def _name(text: str) -> bytes:
    return b"\0" + bytes([len(text)]) + text.encode()


def tell(port: int, command: str) -> None:
    """Sends a command to a guest that listens there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
        speaker.sendto(command.encode(), ("127.0.0.1", port))
