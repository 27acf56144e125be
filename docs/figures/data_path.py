"""The way of a datagram: `python docs/figures/data_path.py [FOLDER]` draws `data-path.svg`."""

import sys
from pathlib import Path

from svg import GREY, INK, Picture

IMAGES = Path(__file__).resolve().parents[1] / "src" / "images"

HOST, MODULE, OUTSIDE = "#ddf4ff", "#dafbe1", "#f6f8fa"
BORDER = "#57606a"


def draw() -> dict[str, str]:
    """Each picture by the name of its file."""
    title = "Datagrams go from a client to the host's socket, to the module, and as flows to the application, and back"
    picture = Picture(900, 250, title)

    def box(x: int, y: int, width: int, height: int, fill: str, head: str, *lines: str) -> None:
        picture.rect(x, y, width, height, fill, BORDER, 6)
        picture.text(x + width / 2, y + 22, head, 13, "middle", weight="bold")
        for number, line in enumerate(lines):
            picture.text(x + width / 2, y + 42 + 17 * number, line, 11, "middle", GREY)

    def both_ways(x1: int, x2: int, y: int, there: str, back: str) -> None:
        picture.line(x1, y, x2, y, INK, arrow=True)
        picture.text((x1 + x2) / 2, y - 7, there, 11, "middle")
        picture.line(x2, y + 34, x1, y + 34, INK, arrow=True)
        picture.text((x1 + x2) / 2, y + 51, back, 11, "middle")

    picture.rect(170, 16, 716, 218, HOST, BORDER, 8)
    picture.text(184, 38, "host process: mitmproxy, watm, or any program in Rust or Python", 13, weight="bold")
    box(12, 84, 112, 90, OUTSIDE, "client", "phone, laptop,", "server")
    box(206, 84, 118, 90, "#ffffff", "socket", "granted by the", "host, by label")
    box(430, 62, 176, 134, MODULE, "module", "wireguard.wasm", "no files, no sockets,", "no clock; bounded memory", "and CPU; sealed")
    box(716, 84, 150, 90, "#ffffff", "application", "mitmproxy's addons,", "your handlers")
    both_ways(124, 206, 112, "UDP, TCP", "")
    both_ways(324, 430, 112, "datagrams,", "streams")
    both_ways(606, 716, 112, "flows:", "TCP and UDP")
    return {"data-path.svg": picture.done()}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    for name, content in draw().items():
        (folder / name).write_text(content)
