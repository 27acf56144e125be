"""The requests of the person behind the WireGuard client."""

import http.client
import pathlib
import socket
import ssl

from mitmproxy import dns

SECONDS = 10


class Page:
    """The answer to a GET."""

    def __init__(self, connection: socket.socket, host: str) -> None:
        client = http.client.HTTPConnection(host)
        client.sock = connection
        client.request("GET", "/")
        response = client.getresponse()
        self.status = response.status
        self.body = response.read()


def page(port: int, host: str) -> Page:
    """Gets `http://host/` through the forwarded port."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        return Page(connection, host)


def secure_page(port: int, host: str, authority: pathlib.Path) -> tuple[Page, str]:
    """Gets `https://host/`, trusting `authority` alone. Also returns the name of the certificate's issuer."""
    context = ssl.create_default_context(cafile=str(authority))
    with (
        socket.create_connection(("127.0.0.1", port), SECONDS) as connection,
        context.wrap_socket(connection, server_hostname=host) as secure,
    ):
        issuer = dict(part[0] for part in secure.getpeercert()["issuer"])
        return Page(secure, host), issuer["commonName"]


def address(port: int, name: str) -> str:
    """Queries the name server behind the forwarded port."""
    query = dns.DNSMessage(
        id=4711,
        query=True,
        op_code=dns.op_codes.QUERY,
        authoritative_answer=False,
        truncation=False,
        recursion_desired=True,
        recursion_available=False,
        reserved=0,
        response_code=dns.response_codes.NOERROR,
        questions=[dns.Question(name, dns.types.A, dns.classes.IN)],
        answers=[],
        authorities=[],
        additionals=[],
    )
    answer = dns.DNSMessage.unpack(datagram(port, query.packed))
    return ", ".join(str(record.ipv4_address) for record in answer.answers)


def datagram(port: int, data: bytes) -> bytes:
    """Sends a datagram through the forwarded port, repeats it if it is lost, and returns the answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.connect(("127.0.0.1", port))
        connection.settimeout(SECONDS / 5)
        for attempt in range(5):
            connection.send(data)
            try:
                return connection.recv(65535)
            except TimeoutError:
                if attempt == 4:
                    raise
    raise AssertionError("the last attempt returns or raises")
