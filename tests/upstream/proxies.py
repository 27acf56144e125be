"""Other people's proxies: microsocks, Dante, OpenSSH, tinyproxy. Each yields its port."""

import asyncio
import contextlib
import getpass
import os
import shutil
import subprocess
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from pathlib import Path

from watm_test_support.ports import free_port

from .ends import LIMIT

HOST = "127.0.0.1"
USER, PASSWORD = "alice", "p:a@s/s%"

DANTE = """
internal: {host} port = {port}
external: {host}
socksmethod: none
clientmethod: none
user.unprivileged: nobody
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks block {{ from: 0.0.0.0/0 to: 0.0.0.0/0 port = 9 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 command: connect {commands} }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 command: udpreply }}
"""

TINYPROXY = """
Port {port}
Listen {host}
BasicAuth {user} {password}
ConnectPort {there}
"""
HTTP_PASSWORD = "secret"
"""The password of tinyproxy, which knows fewer characters."""

SSHD = """
Port {port}
ListenAddress {host}
HostKey {folder}/host
AuthorizedKeysFile {folder}/client.pub
PidFile none
StrictModes no
UsePAM no
"""


@contextlib.asynccontextmanager
async def running(port: int, *command: str | Path) -> AsyncIterator[int]:
    """Runs a program that listens on this port."""
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    try:
        async with asyncio.timeout(LIMIT):
            while True:
                assert process.returncode is None, f"{command} has ended"
                with contextlib.suppress(ConnectionRefusedError):
                    (await asyncio.open_connection(HOST, port))[1].close()
                    break
                await asyncio.sleep(0.02)
        yield port
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def microsocks(*options: str) -> AsyncIterator[int]:
    """microsocks, which carries TCP alone."""
    port = free_port()
    async with running(port, "microsocks", "-i", HOST, "-p", str(port), *options) as ready:
        yield ready


@contextlib.asynccontextmanager
async def dante(folder: Path, commands: str = "udpassociate") -> AsyncIterator[int]:
    """Dante, for everything but port 9."""
    port = free_port()
    config = folder / "danted.conf"
    config.write_text(DANTE.format(host=HOST, port=port, commands=commands))
    async with running(port, "danted", "-f", config, "-p", folder / "danted.pid") as ready:
        yield ready


@contextlib.asynccontextmanager
async def tinyproxy(folder: Path, there: int) -> AsyncIterator[int]:
    """tinyproxy, which connects to one port, for a user."""
    port = free_port()
    config = folder / "tinyproxy.conf"
    config.write_text(TINYPROXY.format(host=HOST, port=port, user=USER, password=HTTP_PASSWORD, there=there))
    async with running(port, "tinyproxy", "-d", "-c", config) as ready:
        yield ready


@contextlib.asynccontextmanager
async def ssh(folder: Path) -> AsyncIterator[int]:
    """`ssh -D` to an sshd of its own."""
    server, port = free_port(), free_port()
    for key in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True, timeout=LIMIT)
    config = folder / "sshd_config"
    config.write_text(SSHD.format(host=HOST, port=server, folder=folder))
    if os.geteuid() == 0:
        # Debian's service makes it at its start.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    options = {"StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "IdentityFile": folder / "client"}
    given = [argument for name, value in options.items() for argument in ("-o", f"{name}={value}")]
    command = ["ssh", "-N", "-D", f"{HOST}:{port}", "-F", "none", "-p", str(server), *given, f"{getpass.getuser()}@{HOST}"]
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "/usr/sbin/sshd"
    async with running(server, sshd, "-D", "-f", config), running(port, *command) as ready:
        yield ready
