"""Two network namespaces: in one our server and wireguard-go, in the other wireguard-go's
interface alone, so that everything there goes through the tunnel. The machine's own network
is not touched."""

import contextlib
import pathlib
from collections.abc import Iterator

from watm_test_support.spaces import Space, run, spaces, wireguard_go

__all__ = ["Namespaces", "namespaces", "run"]


class Namespaces:
    """Use `namespaces`."""

    def __init__(self, outer: Space, inner: Space) -> None:
        self._outer, self._inner = outer, inner
        self.outer, self.inner = outer.name, inner.name
        self.name = ""
        """Of wireguard-go's interface, while there is one."""

    def command(self, namespace: str, *command: str | pathlib.Path) -> list[str]:
        """The command, to be run in one of the namespaces."""
        return Space(namespace).command(*command)

    def inside(self, *command: str | pathlib.Path, stdin: str | None = None) -> str:
        """Runs a program where only the tunnel leads out."""
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
    """Makes both and removes them at the end of the block."""
    with spaces(2) as (outer, inner):
        yield Namespaces(outer, inner)
