"""curl and datagrams through SOCKS5, HTTP CONNECT and port forwards, in a tunnel to wireguard-go."""

import asyncio
import socket

import pytest

from .programs import INSIDE, LIMIT, curl, dialling, peer, start, udp

LOCAL = "127.0.0.1:0"
NAMED = "http://inside.test/"
ADDRESSED = f"http://{INSIDE}/"


async def test_programs_reach_what_is_in_the_tunnel(tmp_path) -> None:
    async with (
        peer() as other,
        dialling(
            tmp_path, other.config, "--socks5", LOCAL, "--http", LOCAL, "--dns", INSIDE,
            "--forward", f"tcp:{LOCAL}={INSIDE}:80", "--forward", f"udp:{LOCAL}={INSIDE}:7",
        ) as near,
    ):  # fmt: skip
        socks, http = (f"127.0.0.1:{near.ports[what]}" for what in ("socks5", "http"))
        for arguments in (
            ("--socks5-hostname", socks, NAMED),
            ("--socks5", socks, ADDRESSED),
            ("--socks4a", socks, NAMED),
            ("--proxytunnel", "--proxy", http, NAMED),
            ("--proxy", http, ADDRESSED),
            (f"http://127.0.0.1:{near.ports['tcp']}/",),
        ):
            assert await curl(*arguments) == (0, "inside"), arguments
        # curl's exit code for a refusal by SOCKS.
        assert await curl("--socks5-hostname", socks, "http://nowhere.test/") == (97, "")
        for size in (1, 1000, 4000):
            assert await udp(near.ports["udp"], b"x" * size) == b"x" * size


async def test_why_a_destination_cannot_be_had_is_told(tmp_path) -> None:
    """Checks the replies of RFC 1928, section 6, and the statuses of HTTP."""
    async with (
        peer() as other,
        dialling(
            tmp_path, other.config + "DisallowedIPs = 10.9.0.0/16\n",
            "--socks5", LOCAL, "--http", LOCAL, "--dns", INSIDE,
        ) as near,
    ):  # fmt: skip

        async def ask(what: str, question: bytes, length: int) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", near.ports[what])
            writer.write(question)
            async with asyncio.timeout(LIMIT):
                answer = await reader.readexactly(length)
            writer.close()
            return answer

        closed, unknown, disallowed = f"{INSIDE}:81", "nowhere.test:80", "10.9.8.7:80"
        asked = {
            closed: b"\1" + socket.inet_aton(INSIDE) + b"\0\x51",
            unknown: b"\3\x0cnowhere.test\0\x50",
            disallowed: b"\1" + socket.inet_aton("10.9.8.7") + b"\0\x50",
        }
        for to, reply, status in ((closed, 5, b"502"), (unknown, 4, b"503"), (disallowed, 2, b"403")):
            answer = await ask("socks5", b"\5\1\0" + b"\5\1\0" + asked[to], 12)
            assert answer == b"\5\0" + b"\5%c\0\1" % reply + bytes(6)
            answer = await ask("http", f"CONNECT {to} HTTP/1.1\r\n\r\n".encode(), 12)
            assert answer == b"HTTP/1.1 " + status
        for _ in range(2):
            assert "10.9.8.7 is not in the AllowedIPs of any [Peer]" in await near.says(disallowed)


async def test_datagrams_are_associated(tmp_path) -> None:
    async with (
        peer() as other,
        dialling(tmp_path, other.config, "--socks5", LOCAL, "--dns", INSIDE) as near,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", near.ports["socks5"])
        writer.write(b"\5\1\0" + b"\5\3\0\1" + bytes(6))
        async with asyncio.timeout(LIMIT):
            answer = await reader.readexactly(12)
        assert answer[:6] == b"\5\0\5\0\0\1"
        port = int.from_bytes(answer[10:])
        by_address = b"\0\0\0\1" + socket.inet_aton(INSIDE) + b"\0\7"
        by_name = b"\0\0\0\3\x0binside.test\0\7"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", port))
            for head in (by_address, by_name, by_address):
                await loop.sock_sendall(client, head + b"hello")
                async with asyncio.timeout(LIMIT):
                    assert await loop.sock_recv(client, 65536) == head + b"hello"
        writer.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--socks5", "0.0.0.0:1080"), "require a login with --user"),
        (("--http", "[::]:8080"), "require a login with --user"),
        (("--socks5", LOCAL, "--user", "ann"), "NAME:FILE"),
        (("--socks5", LOCAL, "--bypass", "a b"), "no such file"),
        (("--socks5", LOCAL, "--dns", "somewhere"), "address of a server"),
        (("--forward", "sctp:127.0.0.1:1=a:2"), "must be tcp:"),
    ],
    ids=str,
)
async def test_what_is_wrong_is_said_before_anything_starts(tmp_path, options, said: str) -> None:
    process = await start(tmp_path, *options)
    _, error = await process.communicate()
    assert process.returncode == 2
    assert said in error.decode()
