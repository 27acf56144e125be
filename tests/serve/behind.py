"""The servers behind listeners: echoes and web servers."""

import contextlib
import pathlib
import socket
import subprocess
import threading
from collections.abc import Iterator

from watm_test_support.watm_serve import HOST

from .programs import START, wait_for


@contextlib.contextmanager
def echo(host: str = HOST) -> Iterator[int]:
    """Runs an echo server. Yields its port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def serve(far: socket.socket) -> None:
        with far, contextlib.suppress(OSError):
            while data := far.recv(65536):
                far.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server((host, 0), family=family, backlog=256) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def nginx(folder: pathlib.Path, servers: dict[str, str]) -> Iterator[None]:
    """Runs nginx with a page for each address, in nginx's notation. The first address is a path."""
    pages = "".join(f'server {{ listen {where}; location / {{ return 200 "{page}"; }} }}\n' for where, page in servers.items())
    folder.mkdir()
    (folder / "nginx.conf").write_text(
        f"""
daemon off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
access_log off;
client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
{pages}
}}
"""
    )
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(["nginx", "-p", folder, "-c", folder / "nginx.conf"], stderr=log)
    path = next(iter(servers)).split()[0].removeprefix("unix:")

    def listens() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(path) == 0

    try:
        wait_for(listens, (folder / "log").read_text)
        yield
    finally:
        process.terminate()
        process.wait(START)
