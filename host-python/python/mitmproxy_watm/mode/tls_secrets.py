"""mitmproxy's TLS secrets, for the captures of the servers whose connections it intercepts."""

from contextvars import ContextVar
from typing import Any

from mitmproxy.net import tls

from mitmproxy_watm.server import Server

_server: ContextVar[Server | None] = ContextVar("watm_tls_secrets", default=None)
"""The server that the connection in progress came through. Each connection has a task of its own."""


def belong_to(server: Server | None) -> None:
    """Add the secrets of the connection that this task handles to the server's captures."""
    _server.set(server)


def install() -> None:
    """Receive the secrets of all connections that mitmproxy makes from now on.

    mitmproxy hands them to this callable, which otherwise writes the file of SSLKEYLOGFILE. It sets
    the callable once for each kind of connection, so that it must be there before the first one.
    """
    if not isinstance(tls.log_master_secret, _Passing):
        tls.log_master_secret = _Passing(tls.log_master_secret)  # type: ignore[assignment]


class _Passing:
    """A receiver of secrets in front of mitmproxy's own, if there is one."""

    # pyOpenSSL asks for it.
    __name__ = "watm_tls_secrets"

    def __init__(self, own: Any) -> None:
        self._own = own

    def __call__(self, connection: Any, secret: bytes) -> None:
        if self._own is not None:
            self._own(connection, secret)
        if (server := _server.get()) is not None:
            server.add_tls_secret(secret.decode("ascii", "replace") + "\n")

    def close(self) -> None:
        """Close the file of SSLKEYLOGFILE."""
        if self._own is not None:
            self._own.close()
