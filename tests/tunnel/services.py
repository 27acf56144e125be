"""The servers inside a tunnel, each a program in a network namespace."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

from watm_test_support.spaces import Space

# Seconds until a program must listen.
_READY = 10
# Reads to the end, and answers with the number of bytes.
COUNT = """
import asyncio, sys
async def count(reader, writer):
    read = 0
    while data := await reader.read(65536):
        read += len(data)
    writer.write(b"%d" % read)
    writer.close()
async def main():
    server = await asyncio.start_server(count, sys.argv[1], int(sys.argv[2]), backlog=1024)
    await server.serve_forever()
asyncio.run(main())
"""
# Reads a number, sends that many bytes, and closes.
SEND = """
import asyncio, sys
async def send(reader, writer):
    left = int(await reader.readline())
    while left:
        piece = bytes(min(left, 65536))
        writer.write(piece)
        await writer.drain()
        left -= len(piece)
    writer.close()
async def main():
    server = await asyncio.start_server(send, sys.argv[1], int(sys.argv[2]))
    await server.serve_forever()
asyncio.run(main())
"""
# Answers PUT with the number of received bytes.
RECEIVE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_PUT(self):
        left = int(self.headers["Content-Length"])
        read = 0
        while read < left and (data := self.rfile.read(min(65536, left - read))):
            read += len(data)
        body = b"%d" % read
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""
# Answers DNS queries for one name with one IPv4 address, and others with NXDOMAIN. Also listens on
# TCP, so that a test can wait for it.
NAMES = """
import socket, sys
host, name, address = sys.argv[1:]
asked = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\\0"
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((host, 53))
there = socket.create_server((host, 53))
while True:
    question, client = server.recvfrom(512)
    end = question.index(b"\\0", 12) + 5
    kind = question[end - 4:end - 2]
    known = question[12:end - 4].lower() == asked
    answers = int(known and kind == b"\\0\\1")
    head = question[:2] + (b"\\x81\\x80" if known else b"\\x81\\x83") + b"\\0\\1\\0" + bytes([answers]) + bytes(4)
    record = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4" + socket.inet_aton(address)
    server.sendto(head + question[12:end] + record * answers, client)
"""
# Opens a number of connections at once, writes to each, and half-closes it. Prints the distinct
# answers.
MANY = """
import asyncio, sys
port, many, size = map(int, sys.argv[1:])
async def main():
    opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(many)))
    async def use(reader, writer):
        writer.write(bytes(size))
        await writer.drain()
        writer.write_eof()
        return int(await reader.read())
    print(sorted(set(await asyncio.gather(*(use(*connection) for connection in opened)))))
asyncio.run(main())
"""


@contextlib.contextmanager
def running(space: Space, *command: object, listens: int | None = None) -> Iterator[subprocess.Popen]:
    """Runs a program for the length of the block, once it listens on the port."""
    process = subprocess.Popen(space.command(*map(str, command)), stdout=subprocess.DEVNULL, text=True)
    try:
        if listens is not None:
            listening(space, process, listens)
        yield process
    finally:
        process.terminate()
        process.wait()


def listening(space: Space, process: subprocess.Popen, port: int) -> None:
    """Waits until a program listens on the port."""
    end = time.monotonic() + _READY
    while f":{port} " not in space.run("ss", "-Hltn"):
        assert process.poll() is None, f"{process.args} ended with {process.returncode}"
        assert time.monotonic() < end, f"{process.args} does not listen on {port}"
        time.sleep(0.02)


def counting(space: Space, address: str, port: int) -> contextlib.AbstractContextManager:
    """Runs `COUNT`."""
    return running(space, sys.executable, "-c", COUNT, address, port, listens=port)


def sending(space: Space, address: str, port: int) -> contextlib.AbstractContextManager:
    """Runs `SEND`."""
    return running(space, sys.executable, "-c", SEND, address, port, listens=port)


def receiving(space: Space, address: str, port: int) -> contextlib.AbstractContextManager:
    """Runs `RECEIVE`."""
    return running(space, sys.executable, "-c", RECEIVE, address, port, listens=port)


def naming(space: Space, host: str, name: str, address: str) -> contextlib.AbstractContextManager:
    """Runs `NAMES`."""
    return running(space, sys.executable, "-c", NAMES, host, name, address, listens=53)
