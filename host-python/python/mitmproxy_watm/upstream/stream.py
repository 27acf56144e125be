"""An upstream connection in the form that mitmproxy's core expects."""

from typing import Any

from mitmproxy.connection import Server

from mitmproxy_watm.mode.instance import FlowStream
from mitmproxy_watm.stream import Stream
from mitmproxy_watm.upstream.errors import through


class UpstreamStream(FlowStream):
    """A stream that stores its error in its server connection, since the core forgets it."""

    server: Server | None = None
    name = ""
    """The name of the upstream."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns a fact, or `default` if it is unknown: a module need not know its source address."""
        return Stream.get_extra_info(self, name, default)

    async def read(self, n: int = -1) -> bytes:
        """Reads as any stream, and stores an error."""
        try:
            return await super().read(n)
        except OSError as e:
            if self.server is not None and self.server.error is None:
                self.server.error = str(through(self.name, e))
            raise
