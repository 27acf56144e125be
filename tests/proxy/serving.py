"""`watm serve` with the PROXY protocol in front of an upstream, in a namespace."""

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator

from watm_test_support import watm_serve
from watm_test_support.repository import MODULES
from watm_test_support.watm_serve import HOST

from .namespace import Namespace

MODULE = MODULES / "proxy-protocol.wasm"

PORT = 7000
UPSTREAM = 8000
METRICS = 7001


class Serving(watm_serve.Serving):
    """A running `watm serve`. Use `serving`."""

    def configure(self, config: str) -> None:
        """Reloads it with another configuration of the module."""
        (self.folder / "proxy.conf").write_text(config)
        self.reload()


@contextlib.contextmanager
def serving(
    inside: Namespace,
    config: str = 'from = "any"',
    *,
    transparent: str | None = None,
    descriptors: int | None = None,
    workers: int = 1,
    address: str = "[::]",
) -> Iterator[Serving]:
    """Runs `watm serve` for the length of the block, on TCP and UDP, by default with IPv4 and IPv6."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "proxy.conf").write_text(config)
        text = f"""
[logs]
level = "info"
[drain]
timeout = 0.2
[metrics]
listen = "{HOST}:{METRICS}"
[[listener]]
name = "proxy"
module = "{MODULE}"
config-file = "proxy.conf"
addresses = ["tcp://{address}:{PORT}", "udp://{address}:{PORT}"]
upstream = {{ ipv4 = "{HOST}:{UPSTREAM}", ipv6 = "[::1]:{UPSTREAM}" }}
workers = {workers}
{f"transparent = {transparent}" if transparent else ""}
"""
        reach = lambda port: inside.connected(HOST, port)  # noqa: E731
        with watm_serve.serving(
            folder, text, inside=inside.command, reach=reach, descriptors=descriptors, kind=Serving
        ) as running:
            yield running
