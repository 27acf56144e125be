"""Handshake initiations of nobody, in a process of its own: `flood.py PORT SECONDS RATE [KEY]`.

With the server's public key their mac1 is right. Prints how many were sent.
"""

import sys
import time

from outer import initiation, stranger

# Sent together, so that the clock is read less often.
BURST = 50


def main(port: int, seconds: float, rate: int, key: str | None = None) -> None:
    datagrams = [initiation(key) for _ in range(1000)]
    sent = 0
    begin = time.monotonic()
    with stranger(port) as socket:
        while (passed := time.monotonic() - begin) < seconds:
            if sent > passed * rate:
                time.sleep(0.002)
                continue
            for number in range(sent, sent + BURST):
                try:
                    socket.send(datagrams[number % len(datagrams)])
                except BlockingIOError:
                    time.sleep(0.001)
            sent += BURST
    print(sent)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
