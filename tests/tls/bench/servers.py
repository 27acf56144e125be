"""The servers in the comparison, configured as equally as possible. Each ends TLS in front of a port."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from watm_test_support.repository import ROOT, WATM

HOST = "127.0.0.1"
CIPHER = "TLS_CHACHA20_POLY1305_SHA256"
# Seconds until a server must be ready.
LIMIT = 20


@dataclass(frozen=True)
class Case:
    """The settings that all servers share."""

    folder: pathlib.Path
    pem: pathlib.Path
    port: int
    to: int
    workers: int
    # The only cipher of TLS 1.3. None leaves the choice to the server.
    cipher: str | None

    def told(self, line: str) -> str:
        """Returns a line of configuration with the cipher in place of `{}`, or nothing."""
        return line.format(self.cipher) if self.cipher else ""

    def written(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)


def watm(case: Case) -> list[str]:
    return [
        *(str(WATM), "serve", "--unsealed", str(ROOT / "watm/target/modules/tls.wasm")),
        *("--listen", f"{HOST}:{case.port}", "--upstream", f"{HOST}:{case.to}"),
        *("--config", str(case.pem), "--workers", str(case.workers), "--log", "error"),
    ]


def hitch(case: Case) -> list[str]:
    config = f"""
frontend = "[{HOST}]:{case.port}"
backend = "[{HOST}]:{case.to}"
pem-file = "{case.pem}"
workers = {case.workers}
backlog = 4096
tls-protos = TLSv1.3
{case.told('ciphersuites = "{}"')}
user = "nobody"
quiet = on
"""
    return ["hitch", f"--config={case.written('hitch.conf', config)}"]


def stunnel(case: Case) -> list[str]:
    config = f"""
foreground = yes
pid =
debug = err
[tls]
accept = {HOST}:{case.port}
connect = {HOST}:{case.to}
cert = {case.pem}
{case.told("ciphersuites = {}")}
"""
    return ["stunnel4", case.written("stunnel.conf", config)]


def haproxy(case: Case) -> list[str]:
    config = f"""
global
    maxconn 8000
    nbthread {case.workers}
    {case.told("ssl-default-bind-ciphersuites {}")}
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen tls
    bind {HOST}:{case.port} ssl crt {case.pem} ssl-min-ver TLSv1.3
    server echo {HOST}:{case.to}
"""
    return ["haproxy", "-db", "-f", case.written("haproxy.cfg", config)]


def nginx(case: Case) -> list[str]:
    config = f"""
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
user root;
worker_processes {case.workers};
worker_rlimit_nofile 20000;
pid {case.folder}/nginx.pid;
error_log {case.folder}/nginx.log;
events {{ worker_connections 8192; }}
stream {{
    server {{
        listen {HOST}:{case.port} ssl reuseport backlog=4096;
        ssl_certificate {case.pem};
        ssl_certificate_key {case.pem};
        ssl_protocols TLSv1.3;
        {case.told("ssl_conf_command Ciphersuites {};")}
        proxy_pass {HOST}:{case.to};
    }}
}}
"""
    return ["nginx", "-c", case.written("nginx.conf", config), "-e", f"{case.folder}/nginx.log"]


SERVERS: dict[str, Callable[[Case], list[str]]] = {
    "watm": watm,
    "hitch": hitch,
    "nginx": nginx,
    "haproxy": haproxy,
    "stunnel": stunnel,
}
# Servers with a configurable number of workers. The others have a thread for each connection.
HAVE_WORKERS = ("watm", "hitch", "nginx", "haproxy")


@contextlib.contextmanager
def running(command: list[str], port: int, cpus: str) -> Iterator[int]:
    """Runs a program on some processors. Yields its process id once its port answers."""
    assert shutil.which(command[0]), f"{command[0]} is not installed"
    process = subprocess.Popen(
        ["taskset", "--cpu-list", cpus, *command],
        # Some programs log the end of each connection.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + LIMIT
        while True:
            with contextlib.suppress(ConnectionError), socket.create_connection((HOST, port), 1):
                break
            assert process.poll() is None, f"{command[0]} has ended"
            assert time.monotonic() < until, f"{command[0]} does not answer"
            time.sleep(0.02)
        yield process.pid
    finally:
        # The session contains the workers.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
