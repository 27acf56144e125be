"""A module that behaves, and a client and an application that notice when it does not answer."""

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

HOST = "127.0.0.1"
# Seconds between two datagrams, and how long an answer may take before it counts as lost.
PACE = 0.004
LOST = 3.0


@dataclass
class Echo:
    """How long answers took, in seconds."""

    times: list[float] = field(default_factory=list)
    lost: int = 0

    def percentile(self, percent: int) -> float:
        if len(self.times) < 2:
            return LOST
        return statistics.quantiles(self.times, n=100)[percent - 1]


@contextlib.contextmanager
def application(port: int) -> Iterator[None]:
    """Sends datagrams back to where they come from."""
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


def listen(port: int, seconds: float) -> Echo:
    """Asks for that long, one datagram after another."""
    echo = Echo()
    end = time.monotonic() + seconds
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.connect((HOST, port))
        client.settimeout(LOST)
        while (began := time.monotonic()) < end:
            asked = b"%d" % len(echo.times)
            try:
                client.send(asked)
                # What comes late is the answer to another one.
                while client.recv(100) != asked:
                    pass
                echo.times.append(time.monotonic() - began)
            except (TimeoutError, ConnectionRefusedError):
                echo.lost += 1
            time.sleep(PACE)
    return echo
