"""Floods a server with handshake initiations of unknown senders: `flood.py PORT SECONDS RATE FIRST COUNT [KEY]`.

They come in turn from COUNT addresses of this machine, from FIRST on, with one port each. With the server's public key
their mac1 is right. Prints the number sent.
"""

import contextlib
import ipaddress
import sys
import time

from watm_test_support.outer import initiation, stranger

# The number of datagrams sent between two reads of the clock.
BURST = 50


def main(port: int, seconds: float, rate: int, first: str, count: int, key: str | None = None) -> None:
    datagrams = [initiation(key) for _ in range(1000)]
    addresses = [str(ipaddress.IPv4Address(first) + number) for number in range(count)]
    sent = 0
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(stranger(port, address)) for address in addresses]
        while (passed := time.monotonic() - begin) < seconds:
            if sent > passed * rate:
                time.sleep(0.002)
                continue
            for number in range(sent, sent + BURST):
                try:
                    sockets[number % count].send(datagrams[number % len(datagrams)])
                except BlockingIOError:
                    time.sleep(0.001)
            sent += BURST
    print(sent)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), *sys.argv[6:])
