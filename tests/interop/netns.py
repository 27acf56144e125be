"""Two network namespaces: one with the server and wireguard-go, one with only wireguard-go's interface, so that its
traffic goes through the tunnel. The machine's own network stays unchanged.
"""

import contextlib
import pathlib
from collections.abc import Iterator

from watm_test_support.spaces import Space, run, spaces, wireguard_go

__all__ = ["Namespaces", "namespaces", "run"]


class Namespaces:
    """Both namespaces. Use `namespaces`."""

    def __init__(self, outer: Space, inner: Space) -> None:
        self._outer, self._inner = outer, inner
        self.outer, self.inner = outer.name, inner.name
        self.name = ""
        """The name of wireguard-go's interface while it exists."""

    def command(self, namespace: str, *command: str | pathlib.Path) -> list[str]:
        """Returns the command that runs another one in a namespace."""
        return Space(namespace).command(*command)

    def inside(self, *command: str | pathlib.Path, stdin: str | None = None) -> str:
        """Runs a program in the namespace whose only route is the tunnel."""
        return self._inner.run(*command, stdin=stdin)

    @contextlib.contextmanager
    def wireguard(self, config: str, addresses: list[str], mtu: int = 1420) -> Iterator[None]:
        """Runs wireguard-go with a configuration in wg(8)'s format for the length of the block."""
        with wireguard_go(self._outer, self._inner, config, addresses, mtu) as self.name:
            for family in ("-4", "-6"):
                self.inside("ip", family, "route", "add", "default", "dev", self.name)
            yield


@contextlib.contextmanager
def namespaces() -> Iterator[Namespaces]:
    """Creates both namespaces and removes them at the end of the block."""
    with spaces(2) as (outer, inner):
        yield Namespaces(outer, inner)
