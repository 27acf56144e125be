"""A real registry and a real web server, on loopback."""

import contextlib
import functools
import http.server
import os
import pathlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator

from watm_test_support.ports import free_port
from watm_test_support.repository import ROOT

REGISTRY = ROOT / "build" / "tools" / "bin" / "registry"
# Seconds.
START = 30


class Certificates:
    """Makes a certificate authority, and a certificate for 127.0.0.1."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.authority = folder / "ca.pem"
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        authority_key, request, extensions = folder / "ca.key", folder / "server.csr", folder / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
        self._openssl("req", "-x509", *new, "-keyout", authority_key, "-out", self.authority, "-subj", "/CN=tests")
        self._openssl("req", *new, "-keyout", self.key, "-out", request, "-subj", "/CN=127.0.0.1")
        signed = ["-CA", self.authority, "-CAkey", authority_key, "-extfile", extensions]
        self._openssl("x509", "-req", "-in", request, *signed, "-out", self.certificate)

    def _openssl(self, *arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=START)


@contextlib.contextmanager
def registry(
    folder: pathlib.Path, certificates: Certificates | None = None, users: str | None = None
) -> Iterator[str]:
    """Runs the reference implementation of a registry. Yields its `host:port`."""
    address = f"127.0.0.1:{free_port()}"
    # These lines are YAML.
    config = [
        "version: 0.1",
        "log: {level: error, accesslog: {disabled: true}}",
        f"storage: {{filesystem: {{rootdirectory: {folder / 'registry'}}}}}",
        "http:",
        f"  addr: {address}",
    ]
    if certificates:
        config += ["  tls:", f"    certificate: {certificates.certificate}", f"    key: {certificates.key}"]
    if users:
        (folder / "users").write_text(users)
        config += [f"auth: {{htpasswd: {{realm: tests, path: {folder / 'users'}}}}}"]
    (folder / "registry.yml").write_text("\n".join(config) + "\n")
    # By default it sends traces to a collector.
    env = os.environ | {"OTEL_TRACES_EXPORTER": "none"}
    with (folder / "registry.log").open("wb") as log:
        command = [REGISTRY, "serve", folder / "registry.yml"]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        try:
            host, port = address.split(":")
            deadline = time.monotonic() + START
            while True:
                assert process.poll() is None, (folder / "registry.log").read_text()
                with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                    break
                assert time.monotonic() < deadline, "the registry does not start"
                time.sleep(0.05)
            yield address
        finally:
            process.terminate()
            process.wait(START)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Python's own server with redirects. It supports If-Modified-Since but no ranges."""

    def do_GET(self) -> None:
        target = self.server.moved.get(self.path)
        if target is None:
            super().do_GET()
            return
        self.send_response(302)
        self.send_header("Location", target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def copyfile(self, *arguments: object) -> None:
        # The test may kill the client meanwhile.
        with contextlib.suppress(ConnectionError):
            super().copyfile(*arguments)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        self.server.answered.append(int(code))

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def web_server(
    folder: pathlib.Path, certificates: Certificates | None = None, moved: dict[str, str] | None = None
) -> Iterator[tuple[str, list[int]]]:
    """Runs a web server. Yields its URL and the status of each answer."""
    handler = functools.partial(Handler, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.answered, server.moved = [], moved or {}
    scheme = "http"
    if certificates:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.certificate, certificates.key)
        # The handshake happens in the connection's thread, so that a client without trust does not
        # block others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}", server.answered
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
