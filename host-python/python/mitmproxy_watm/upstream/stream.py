"""An upstream connection, as mitmproxy's core takes it."""

from typing import Any

from mitmproxy.connection import Server

from mitmproxy_watm.mode.instance import FlowStream
from mitmproxy_watm.stream import Stream
from mitmproxy_watm.upstream.errors import through


class UpstreamStream(FlowStream):
    """Notes why it ended with the connection that it is of, since the core forgets it."""

    server: Server | None = None
    name = ""
    """Of the upstream."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As asyncio's, which knows nothing of what is not known: a module need not say where it sends from."""
        return Stream.get_extra_info(self, name, default)

    async def read(self, n: int = -1) -> bytes:
        """As any stream's."""
        try:
            return await super().read(n)
        except OSError as e:
            if self.server is not None and self.server.error is None:
                self.server.error = str(through(self.name, e))
            raise
