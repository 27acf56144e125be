"""The servers that the demo's client wants to reach, all on loopback."""

import contextlib
import http.server
import pathlib
import socketserver
import ssl
import threading
from collections.abc import Iterator

from watm_test_support.certificates import Authority

PAGE = b"<!doctype html><title>WATM</title><p>This page came through the sandbox.\n"
UDP_GREETING = b"you said: "


class _Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        pass


class _Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        data, socket = self.request
        socket.sendto(UDP_GREETING + data, self.client_address)


def certify(folder: pathlib.Path, host: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes the certificates of an authority and of `host`, the latter with its key. Returns both paths."""
    authority = Authority("WATM demo authority")
    authority_file, host_file = folder / "authority.pem", folder / "host.pem"
    authority_file.write_text(authority.pem)
    host_file.touch(mode=0o600)
    host_file.write_text(authority.sign(host, names=[host]).pem)
    return authority_file, host_file


@contextlib.contextmanager
def serve(host_file: pathlib.Path) -> Iterator[dict[str, int]]:
    """Serves http, https and udp and yields their ports."""
    plain = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    secure = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(host_file)
    # The handshake happens in the connection's thread, at its first read.
    secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
    udp = socketserver.ThreadingUDPServer(("127.0.0.1", 0), _Answer)
    servers = {"http": plain, "https": secure, "udp": udp}
    for server in servers.values():
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    try:
        yield {name: server.server_address[1] for name, server in servers.items()}
    finally:
        for server in servers.values():
            server.shutdown()
            server.server_close()
