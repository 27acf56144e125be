"""Known bugs of other programs for this protocol, numbered in the order of their discovery.
`watm/proxy-protocol` tests those of parsers.
"""

import socket
import threading
import time

import pytest

from .headers import SIGNATURE, version_1, version_2
from .namespace import namespace
from .serving import PORT, UPSTREAM, serving

HOST = "127.0.0.1"
HEADER = version_2("203.0.113.7", "198.51.100.1", 4444)
DATAGRAM = version_2("203.0.113.7", "198.51.100.1", 4444, udp=True)
PIECE = bytes(range(256)) * 4096
# The number of pieces: 24 MiB in all.
PIECES = 24


@pytest.fixture(scope="module")
def inside():
    with namespace() as made:
        yield made


@pytest.fixture(scope="module")
def running(inside):
    with serving(inside) as made:
        yield made


def refused(running, reason: str) -> float:
    return running.metric(rf'watm_module_proxy_refused_{reason}_total\{{listener="proxy"\}}')


def assert_reset(near: socket.socket) -> None:
    with pytest.raises(ConnectionResetError):
        assert near.recv(1) == b"", "something was said to a stranger"
        near.sendall(b"x")
        near.recv(1)


def works(inside) -> None:
    with inside.bound(HOST, UPSTREAM, socket.SOCK_STREAM) as upstream, inside.connected(HOST, PORT) as near:
        near.sendall(HEADER + b"hello")
        far, _ = upstream.accept()
        with far:
            assert far.recv(5) == b"hello"
            far.sendall(b"answer")
            assert near.recv(6) == b"answer"


@pytest.mark.parametrize(
    "datagram",
    [b"PROXY TCP4 203.0.113.7 198.51.100.1 4444 443\r", b"PROXY TCP4 1 2 3 65536\r\n", SIGNATURE, b"", HEADER],
)
def test_b1_b9_no_datagram_ends_it(inside, running, datagram):
    with inside.bound(HOST, UPSTREAM, socket.SOCK_DGRAM) as upstream, inside.connected(HOST, PORT, socket.SOCK_DGRAM) as near:
        near.send(datagram)
        near.send(DATAGRAM + b"good")
        assert upstream.recv(100) == b"good"


@pytest.mark.parametrize("closes", [True, False], ids=["b2", "b3"])
def test_a_slow_reader_gets_all_of_it(inside, running, closes):
    with inside.bound(HOST, UPSTREAM, socket.SOCK_STREAM) as upstream, inside.connected(HOST, PORT) as near:
        near.sendall(HEADER)
        far, _ = upstream.accept()

        def send() -> None:
            for _ in range(PIECES):
                far.sendall(PIECE)
            if closes:
                far.close()

        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(0.3)
        for _ in range(PIECES):
            piece = bytearray()
            while len(piece) < len(PIECE) and (data := near.recv(len(PIECE) - len(piece))):
                piece += data
            assert piece == PIECE
        sender.join()
        if closes:
            assert near.recv(1) == b""
        far.close()


def test_b5_two_hundred_connections_at_once_wait_for_nobody(inside, running):
    before = inside.counter("TcpExt", "TCPSynRetrans")
    with inside.bound(HOST, UPSTREAM, socket.SOCK_STREAM) as upstream:
        clients = [inside.socket(HOST, socket.SOCK_STREAM) for _ in range(200)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex((HOST, PORT))
        for client in clients:
            client.settimeout(10)
            client.sendall(HEADER)
        for _ in clients:
            upstream.accept()[0].close()
        for client in clients:
            client.close()
    # A SYN beyond the backlog is lost, and sent again after a second.
    assert inside.counter("TcpExt", "TCPSynRetrans") == before


def test_b7_a_header_may_come_byte_by_byte(inside, running):
    with inside.bound(HOST, UPSTREAM, socket.SOCK_STREAM) as upstream:
        for header in (version_1("203.0.113.7", "198.51.100.1", 4444), HEADER):
            with inside.connected(HOST, PORT) as near:
                near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for byte in header + b"x":
                    near.sendall(bytes([byte]))
                far, _ = upstream.accept()
                assert far.recv(10) == b"x"
                far.close()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (DATAGRAM, "protocol"),
        (SIGNATURE + b"\x21\x11\0\x13" + HEADER[16:] + b"\x03\0\x04\0\0\0\0", "checksum"),
        (SIGNATURE + b"\x21\x11\0\x0f" + HEADER[16:] + b"\x01\0\x09", "tlv_length"),
        (b"PROXY TCP4 203.0.113.7 198.51.100.1 +4444 443\r\n", "port"),
        (b"PROXY TCP4 203.0.113.7 198.51.100.1 65536 443\r\n", "port"),
        (b"PROXY UNKNOWN " + b"x" * 100 + b"\r\n", "too_long"),
        (b"GET / HTTP/1.1\r\n", "not_proxy"),
    ],
)
def test_b9_b10_b15_a_wrong_header_is_refused_and_counted(inside, running, header, reason):
    before = refused(running, reason)
    with inside.connected(HOST, PORT) as near:
        near.sendall(header)
        assert_reset(near)
    assert refused(running, reason) == before + 1


def test_b11_a_header_does_not_take_for_ever():
    with namespace() as inside, serving(inside, 'from = "any"\nheader-time = "3"'), inside.connected(HOST, PORT) as near:
        near.sendall(HEADER[:5])
        began = time.monotonic()
        assert near.recv(1) == b""
        assert 2.9 < time.monotonic() - began < 10


def test_b12_it_survives_a_lack_of_descriptors():
    with namespace() as inside, serving(inside, descriptors=64) as running:
        clients = [inside.connected(HOST, PORT) for _ in range(100)]
        time.sleep(0.3)
        for client in clients:
            client.close()
        works(inside)
        assert running.metric(r'watm_host_accept_shortages_total\{listener="proxy"\}') > 0


def test_b13_it_survives_that_the_upstream_is_away(inside, running):
    with inside.connected(HOST, PORT, socket.SOCK_DGRAM) as near:
        for _ in range(3):
            near.send(DATAGRAM + b"lost")
            time.sleep(0.02)
        with inside.connected(HOST, PORT) as client:
            client.sendall(HEADER)
            assert_reset(client)
        with inside.bound(HOST, UPSTREAM, socket.SOCK_DGRAM) as upstream:
            arrived = []
            upstream.settimeout(0.5)
            for number in range(10):
                near.send(DATAGRAM + b"%d" % number)
                datagram, peer = upstream.recvfrom(100)
                arrived.append(datagram)
                upstream.sendto(datagram, peer)
                assert near.recv(100) == datagram
            assert arrived == [b"%d" % number for number in range(10)]
    works(inside)


def test_another_list_of_who_is_believed_holds_at_once_and_without_one_nobody_is():
    with namespace() as inside, serving(inside, "") as running:
        for config, believed in [("", False), ('from = "127.0.0.1"', True), ('from = "10.0.0.0/8"', False)]:
            if config:
                running.configure(config)
            if believed:
                works(inside)
            else:
                # The reset may arrive before `connect` returns.
                with pytest.raises(ConnectionResetError), inside.connected(HOST, PORT) as near:
                    assert_reset(near)
                    raise ConnectionResetError
