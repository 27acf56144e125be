"""A well-behaved module with a client and an application, which notice when it does not answer.

They are a process of their own: the watcher of `watm serve` would delay them.
"""

import argparse
import contextlib
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

HOST = "127.0.0.1"
# Seconds between two datagrams, after which the same is sent again, and until it counts as lost:
# the kernel drops some when thousands of connections end at once.
PACE = 0.004
AGAIN = 0.5
LOST = 3.0
# The seconds that the process may take in addition.
PATIENCE = 60


@dataclass
class Echo:
    """The times of answers, in seconds."""

    times: list[float] = field(default_factory=list)
    lost: int = 0

    def percentile(self, percent: int) -> float:
        if len(self.times) < 2:
            return LOST
        return statistics.quantiles(self.times, n=100)[percent - 1]


def listen(port: int, answers: int, seconds: float) -> Echo:
    """Asks the module at `port`, in front of an application at `answers`, for this many seconds."""
    root = pathlib.Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.hostile.neighbour", str(port), str(answers), str(seconds)]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, timeout=seconds + PATIENCE, check=True)
    return Echo(**json.loads(done.stdout))


@contextlib.contextmanager
def _application(port: int) -> Iterator[None]:
    """Returns datagrams to their senders."""
    with socket.socket(type=socket.SOCK_DGRAM) as answering:
        answering.bind((HOST, port))
        answering.settimeout(0.1)
        ending = threading.Event()

        def answer() -> None:
            while not ending.is_set():
                with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                    answering.sendto(*answering.recvfrom(65536))

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()


def _ask(port: int, seconds: float) -> Echo:
    """Sends one datagram after another for this many seconds."""
    echo = Echo()
    end = time.monotonic() + seconds
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect((HOST, port))
        client.settimeout(AGAIN)
        while (began := time.monotonic()) < end:
            asked = b"%d" % len(echo.times)
            while not (answered := _exchange(client, asked)) and time.monotonic() < began + LOST:
                pass
            if answered:
                echo.times.append(time.monotonic() - began)
            else:
                echo.lost += 1
            time.sleep(PACE)
    return echo


def _exchange(client: socket.socket, asked: bytes) -> bool:
    try:
        client.send(asked)
        # A late datagram answers an earlier one.
        while client.recv(100) != asked:
            pass
    except (TimeoutError, ConnectionRefusedError):
        return False
    return True


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("answers", type=int)
    parser.add_argument("seconds", type=float)
    arguments = parser.parse_args()
    with _application(arguments.answers):
        echo = _ask(arguments.port, arguments.seconds)
    json.dump(asdict(echo), sys.stdout)


if __name__ == "__main__":
    _main()
