"""`make bench-shadowsocks`: the module compared with other servers, in turns, with one client.

    build/venv-3.13/bin/python -m tests.shadowsocks.bench --help

Each server decrypts the data of shadowsocks-rust's client and passes it on, and encrypts the
answers. All run on one machine, so CPU time limits throughput. The CPU time for each GB is measured
too. `component` is the module with the host's ciphers, `alone` the same without them, `water` the
WATER module.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator

from tests.update.authority import Authority, done
from watm_test_support import machine
from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES, ROOT, WATM

from ..methods import LIBEV, RUST, password

HOST = "127.0.0.1"
TOOLS = ROOT / "build" / "tools" / "bin"
METHODS = ["chacha20-ietf-poly1305", "aes-256-gcm", "2022-blake3-chacha20-poly1305", "2022-blake3-aes-128-gcm"]
SERVERS = ["rust", "libev", "component", "alone", "water"]
# The capabilities in the component's seal: all except the host's ciphers.
ALONE = {"sockets": ["tcp listen"], "memory-bytes": 1 << 29, "cpu-permille": 1000, "flows": 100, "instances": 1}
CHUNK = 1 << 18
# Seconds until a program must be ready.
LIMIT = 10


def main() -> None:
    parser = argparse.ArgumentParser(description="Shadowsocks servers, side by side.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256, help="a direction, in each round")
    parser.add_argument("--messages", type=int, default=2000, help="of 512 bytes, one after another")
    parser.add_argument("--method", action="append", choices=RUST, help="again for more")
    parser.add_argument("--server", action="append", choices=SERVERS, help="again for more")
    parser.add_argument("--tools", type=pathlib.Path, default=TOOLS, help="folder of shadowsocks-rust (%(default)s)")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "bench-shadowsocks.json")
    options = parser.parse_args()
    described = machine.described()
    samples: dict[str, dict[str, list[dict[str, float]]]] = {}
    with sink() as port:
        for method in options.method or METHODS:
            names = [name for name in options.server or SERVERS if name != "libev" or method in LIBEV]
            taken = samples.setdefault(method, {name: [] for name in names})
            for number in range(options.rounds):
                for name in machine.turns(names, number):
                    taken[name].append(measure(name, method, port, options))
            show(method, taken)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"environment": described, "samples": samples}, indent=1) + "\n")
    print(f"every sample: {options.output}")


def measure(name: str, method: str, port: int, options: argparse.Namespace) -> dict[str, float]:
    """The figures of one round of one server."""
    size = options.megabytes * 1_000_000
    with tempfile.TemporaryDirectory() as folder, server(name, method, port, pathlib.Path(folder), options.tools) as (at, process):
        with client(method, at, pathlib.Path(folder), options.tools) as socks:
            for _ in range(2):
                move(socks, port, b"U", 1_000_000)
            before = cpu(process)
            up = move(socks, port, b"U", size)
            between = cpu(process)
            down = move(socks, port, b"D", size)
            after = cpu(process)
            return {
                "upload MB/s": size / up / 1e6,
                "download MB/s": size / down / 1e6,
                "upload CPU s/GB": (between - before) / size * 1e9,
                "download CPU s/GB": (after - between) / size * 1e9,
                "round trip of 512 bytes: us": echo(socks, port, options.messages) * 1e6,
            }


def show(method: str, taken: dict[str, list[dict[str, float]]]) -> None:
    """Formats medians with minimum and maximum, and their ratio to those of shadowsocks-rust."""
    print(f"\n{method}")
    for what in next(iter(taken.values()))[0]:
        medians = {name: statistics.median(sample[what] for sample in samples) for name, samples in taken.items()}
        base = medians.get("rust")
        cells = [
            f"{name} {machine.spread([sample[what] for sample in taken[name]], 2)}"
            + (f" ({value / base:.2f})" if base and name != "rust" else "")
            for name, value in medians.items()
        ]
        print(f"  {what:28} " + "   ".join(cells), flush=True)


def cpu(process: int) -> float:
    """Returns the CPU seconds that a process has used."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connect(socks: int, port: int) -> socket.socket:
    """Opens a connection through SOCKS5."""
    connection = socket.create_connection((HOST, socks), LIMIT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(120)
    connection.sendall(b"\x05\x01\x00")
    exactly(connection, 2)
    connection.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(HOST) + struct.pack(">H", port))
    exactly(connection, 10)
    return connection


def exactly(connection: socket.socket, count: int) -> bytes:
    """Reads this many bytes."""
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise EOFError("the connection has ended")
        data += part
    return data


def move(socks: int, port: int, way: bytes, size: int) -> float:
    """Returns the seconds that this many bytes take in a direction."""
    with connect(socks, port) as connection:
        begin = time.perf_counter()
        connection.sendall(way + struct.pack(">Q", size))
        if way == b"U":
            give(connection, size)
            exactly(connection, 1)
        else:
            take(connection, size)
        return time.perf_counter() - begin


def echo(socks: int, port: int, count: int) -> float:
    """Returns the median round trip of a message."""
    with connect(socks, port) as connection:
        connection.sendall(b"E" + struct.pack(">Q", count * 512))
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            connection.sendall(bytes(512))
            exactly(connection, 512)
            times.append(time.perf_counter() - begin)
        return statistics.median(times)


def give(connection: socket.socket, size: int) -> None:
    data = memoryview(os.urandom(CHUNK))
    while size:
        part = data[: min(size, CHUNK)]
        connection.sendall(part)
        size -= len(part)


def take(connection: socket.socket, size: int) -> None:
    data = bytearray(CHUNK)
    while size:
        count = connection.recv_into(data, min(size, CHUNK))
        if not count:
            raise EOFError("the connection has ended")
        size -= count


@contextlib.contextmanager
def sink() -> Iterator[int]:
    """Runs the upstream of all servers in a process of its own."""
    listener = socket.create_server((HOST, 0), backlog=128)
    process = multiprocessing.Process(target=serve, args=(listener,), daemon=True)
    process.start()
    try:
        yield listener.getsockname()[1]
    finally:
        process.terminate()
        process.join()


def serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, contextlib.suppress(EOFError, ConnectionError):
            way = exactly(connection, 1)
            (size,) = struct.unpack(">Q", exactly(connection, 8))
            if way == b"U":
                take(connection, size)
                connection.sendall(b"!")
            elif way == b"D":
                give(connection, size)
            else:
                for _ in range(size // 512):
                    connection.sendall(exactly(connection, 512))


@contextlib.contextmanager
def running(port: int, *command: str | pathlib.Path) -> Iterator[int]:
    """Runs a program until it listens there. Yields its process id."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + LIMIT
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not run")
            with contextlib.suppress(ConnectionError):
                socket.create_connection((HOST, port), 1).close()
                break
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def server(name: str, method: str, target: int, folder: pathlib.Path, tools: pathlib.Path) -> Iterator[tuple[int, int]]:
    """Runs a server. Yields its port and process. All servers except the module's connect to the
    requested destination. The module's connects to the target.
    """
    port = free_port()
    settings = {"server": HOST, "server_port": port, "password": password(method), "method": method}
    config = folder / "server.json"
    if name in ("rust", "libev"):
        config.write_text(json.dumps(settings))
        command = [tools / "ssserver" if name == "rust" else "ss-server", "-c", config]
    else:
        del settings["server"], settings["server_port"]
        config.write_text(json.dumps(settings))
        module = MODULES / ("shadowsocks.watm1.wasm" if name == "water" else "shadowsocks.wasm")
        trust: list[str | pathlib.Path] = ["--unsealed"]
        if name == "alone":
            module, trust = without_ciphers(module, folder)
        command = [WATM, "listen", *trust, module, f"{HOST}:{port}", "--config", config, "--forward", f"{HOST}:{target}"]
    with running(port, *command) as process:
        yield port, process


def without_ciphers(module: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, list[str | pathlib.Path]]:
    """Seals the module without the host's ciphers. Returns the file and the options of `watm` for it."""
    authority = Authority(folder, ["shadowsocks"])
    body = module.read_bytes()
    sealed = folder / "alone.wasm"
    sealed.write_bytes(authority.seal_body(body, "1.1", name="shadowsocks", roles=["listener"], capabilities=ALONE))
    trusting = ["--root", authority.root, "--state", folder / "state"]
    done("verify", sealed, "--accept", *trusting)
    return sealed, trusting


@contextlib.contextmanager
def client(method: str, to: int, folder: pathlib.Path, tools: pathlib.Path) -> Iterator[int]:
    """Runs a SOCKS5 server in front of a shadowsocks server. Yields its port."""
    port = free_port()
    settings = {"server": HOST, "server_port": to, "local_address": HOST, "local_port": port}
    config = folder / "client.json"
    config.write_text(json.dumps(settings | {"password": password(method), "method": method}))
    with running(port, tools / "sslocal", "-c", config):
        yield port


if __name__ == "__main__":
    main()
