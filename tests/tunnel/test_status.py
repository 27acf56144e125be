"""The status of `watm tunnel`, and its captures for debugging."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

import mitmproxy_watm
from mitmproxy_watm.wireguard import genkey
from watm_test_support.certificates import Authority, Leaf
from watm_test_support.repository import WATM
from watm_test_support.sniffer import pages, sniffing

from .programs import INSIDE, LIMIT, WIREGUARD, Peer, curl, peer

LOCAL = "127.0.0.1:0"
PAGE = f"http://{INSIDE}/"
# A file without keys, which the module refuses.
REFUSED = "[Interface]\n[Peer]\nEndpoint = 127.0.0.1:9\n"


@dataclass
class Tunnel:
    """A running tunnel: the addresses of its proxy and its status, and its first output."""

    socks: str
    status: str
    said: list[str]

    async def fetch(self) -> None:
        """Returns a page through the tunnel."""
        assert await curl("--socks5", self.socks, PAGE) == (0, "inside")

    async def page(self, path: str) -> tuple[int, str]:
        """Returns a page of its status server, with the status code."""
        code, text = await curl("--write-out", "\n%{http_code}", f"http://{self.status}{path}")
        assert code == 0
        body, _, answered = text.rpartition("\n")
        return int(answered), body

    async def show(self, *options: str) -> str:
        """Runs `watm status`."""
        return await run(WATM, "status", self.status, *options)


async def run(*command: object) -> str:
    """Returns the output of a program."""
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    async with asyncio.timeout(LIMIT):
        printed, _ = await process.communicate()
    assert process.returncode == 0, command
    return printed.decode()


@contextlib.asynccontextmanager
async def tunnel(folder, config: str, *options: object, **environment: object) -> AsyncIterator[Tunnel]:
    """Runs `watm tunnel` with a proxy and a status. It must exit with 0."""
    path = folder / "wg0.conf"
    path.write_text(config)
    command = [WATM, "tunnel", path, "--module", WIREGUARD, "--unsealed", "--state", folder / "state.json"]
    command += ["--socks5", LOCAL, "--status", LOCAL, *options]
    environment = os.environ | {name: str(value) for name, value in environment.items()}
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env=environment)
    places: dict[str, str] = {}
    said = []
    try:
        async with asyncio.timeout(LIMIT):
            while len(places) < 2:
                line = (await process.stderr.readline()).decode()
                assert line, said
                said.append(line)
                if found := re.search(r"(listening|status) on ([\d.:]+)", line):
                    places[found[1]] = found[2]
        yield Tunnel(places["listening"], places["status"], said)
    finally:
        process.terminate()
        rest = (await process.stderr.read()).decode()
        assert await process.wait() == 0, rest


def to(port: int, other: Peer) -> str:
    """Returns the configuration with the peer at another port."""
    return re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", other.config)


async def test_a_peer_that_does_not_answer_is_shown(tmp_path) -> None:
    async with peer() as other, tunnel(tmp_path, to(9, other)) as near:
        assert re.search(r"127\.0\.0\.1:9 +not connected yet +0 B +0 B +- +-", await near.show())
        assert (await near.page("/readyz"))[0] == 503


async def test_peers_are_shown_to_people_and_programs(tmp_path) -> None:
    async with peer() as other, tunnel(tmp_path, other.config) as near:
        for _ in range(30):
            await near.fetch()
        assert await near.page("/readyz") == (200, "ready\n")
        table = await near.show()
        assert re.search(r"tunnel .*wg0\.conf, by .*wireguard\.wasm", table)
        assert re.search(r"127\.0\.0\.1:\d+ +(just now|\d+ s ago) +[\d.]+ KiB +[\d.]+ KiB +[\d.]+ ms +0 %", table), table
        assert re.search(r"\n  running, uses [\d.]+ MiB of memory, [\d.]+ MiB at most; [\d.]+ % of a core; ", table), table
        assert "\n  the module has no seal, " in table and "; cannot read or write files; " in table
        assert "WRITES" not in table

        watching = await asyncio.create_subprocess_exec(WATM, "status", near.status, "--watch", stdout=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(LIMIT):
                for _ in range(2):
                    # Each answer ends with an empty line.
                    shown = await watching.stdout.readuntil(b"\n\n")
                    assert b"tunnel " in shown and b"running, uses " in shown
        finally:
            watching.kill()
            await watching.wait()

        (told,) = json.loads(await near.show("--json"))["tunnels"][0]["peers"]
        assert 0 <= told["last_handshake_seconds"] < LIMIT
        assert 0 < told["round_trip_seconds"] < LIMIT
        assert told["loss"] == 0
        assert told["received_bytes"] > 30 * 100

        code, page = await near.page("/metrics")
        assert code == 200
        families = {family.name: family for family in text_string_to_metric_families(page)}
        labels = {"tunnel": str(tmp_path / "wg0.conf"), "peer": told["name"]}
        for name in ("last_handshake_timestamp_seconds", "round_trip_seconds", "loss_ratio"):
            (sample,) = families[f"watm_peer_{name}"].samples
            assert sample.labels == labels
        bytes_of = {sample.labels["direction"]: sample.value for sample in families["watm_peer_bytes"].samples}
        assert bytes_of["in"] >= told["received_bytes"]
        assert bytes_of["out"] > 0
        assert [sample.value for sample in families["watm_module_wireguard_handshakes"].samples] == [1]
        checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=60)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


async def test_a_tunnel_is_ready_when_what_is_asked_through_it_answers(tmp_path) -> None:
    async with peer() as other, tunnel(tmp_path, other.config, "--ready-check", PAGE) as near:
        assert await near.page("/readyz") == (200, "ready\n")
        os.kill(other.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(1)
            code, reason = await near.page("/readyz")
        finally:
            os.kill(other.pid, signal.SIGCONT)
        assert code == 503
        assert INSIDE in reason
        async with asyncio.timeout(LIMIT):
            while (await near.page("/readyz"))[0] != 200:
                await asyncio.sleep(0.2)


async def test_ports_are_checked_too(tmp_path) -> None:
    async with peer() as other, tunnel(tmp_path, other.config, "--ready-check", f"tcp:{INSIDE}:7") as near:
        assert await near.page("/readyz") == (200, "ready\n")
    async with peer() as other, tunnel(tmp_path, other.config, "--ready-check", f"tcp:{INSIDE}:9") as near:
        code, reason = await near.page("/readyz")
        assert code == 503
        assert f"{INSIDE}:9: " in reason


@contextlib.asynccontextmanager
async def page_in_tls(leaf: Leaf, folder) -> AsyncIterator[str]:
    """Serves a page in TLS at every address inside a tunnel. Yields the client's file."""
    (folder / "page.pem").write_text(leaf.pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "page.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        writer.close()

    async def pump(source, sink) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    page = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)

    async def carry(stream: mitmproxy_watm.Stream) -> None:
        reader, writer = await asyncio.open_connection(*page.sockets[0].getsockname())
        await asyncio.gather(pump(stream, writer), pump(reader, stream))

    config = json.dumps({"server_key": genkey(), "client_key": genkey()})
    async with page:
        async with await mitmproxy_watm.start_server(
            "wireguard", "127.0.0.1", 0, config=config, handle_tcp_stream=carry
        ) as server:
            yield server.client_configs()[0].content


async def test_pages_in_tls_are_asked_for_if_their_certificate_is_trusted(tmp_path) -> None:
    known, other = Authority("known"), Authority("other")
    for name, authority in (("known.pem", known), ("other.pem", other)):
        (tmp_path / name).write_text(authority.pem)
    leaf = known.sign("a page", names=[], addresses=["10.9.8.7"])
    async with page_in_tls(leaf, tmp_path) as config:
        for address, trusted, expected in (
            ("10.9.8.7", "known.pem", (200, "ready\n")),
            ("10.9.8.7", "other.pem", (503, "UnknownIssuer")),
            ("10.9.8.8", "known.pem", (503, "not valid for name")),
        ):
            check = ("--ready-check", f"https://{address}/up")
            async with tunnel(tmp_path, config, *check, SSL_CERT_FILE=tmp_path / trusted) as near:
                code, said = await near.page("/readyz")
                assert code == expected[0]
                assert expected[1] in said


async def test_packets_and_keys_are_what_wireshark_reads(tmp_path) -> None:
    packets, keys, sniffed = (tmp_path / name for name in ("inner.pcapng", "keys.log", "outer.pcap"))
    async with (
        peer() as other,
        sniffing(other.port) as between,
        tunnel(tmp_path, to(between.port, other), "--pcap", packets, "--key-log", keys) as near,
    ):
        # A warning announces both files.
        said = "".join(near.said)
        assert "all packets unencrypted" in said
        assert "has the local private key" in said
        await near.fetch()
        table = await near.show()
        assert f"WRITES all packets, unencrypted, to {packets}" in table
        assert f"WRITES keys of all tunnels to {keys}" in table
    for path in (packets, keys):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    about = await run("capinfos", "-M", packets)
    assert re.search(r"File encapsulation: +rawip", about)
    assert re.search(r"Time precision = nanoseconds", about)
    assert re.search(r"Name = [A-Za-z0-9+/]{43}=", about)
    conversation = [["GET", ""], ["", "200"]]
    assert await pages(packets) == conversation
    assert await between.pages(sniffed, keys) == ([], conversation)


async def test_a_start_that_fails_leaves_no_file_in_the_way_of_the_next(tmp_path) -> None:
    packets, keys, config = (tmp_path / name for name in ("inner.pcapng", "keys.log", "wg0.conf"))
    async with peer() as other:
        usable = to(9, other)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for text, proxy, expected in ((REFUSED, LOCAL, "configuration refused"), (usable, f"127.0.0.1:{port}", "in use")):
            config.write_text(text)
            status, said = await fails(tmp_path, "--socks5", proxy, "--pcap", packets, "--key-log", keys)
            assert status == 1
            assert expected in said
            assert not packets.exists()
            # A module that has called its peer has written keys. The next ones are appended.
            assert text == usable or not keys.exists()


async def test_what_cannot_be_written_or_asked_is_said_before_anything_starts(tmp_path) -> None:
    (tmp_path / "old").write_bytes(b"")
    (tmp_path / "open").write_bytes(b"")
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "wg0.conf").write_text(REFUSED)
    for options, expected in (
        (("--pcap", tmp_path / "old"), "is not overwritten"),
        (("--key-log", tmp_path / "open"), "restrict it to its owner"),
        (("--ready-check", "tcp:10.0.0.1:80"), "--status"),
        (("--status", LOCAL, "--ready-check", "ftp://x/"), "must be http://"),
    ):
        status, said = await fails(tmp_path, "--socks5", LOCAL, *options)
        assert status == 2, said
        assert expected in said


async def fails(folder, *options: object) -> tuple[int, str]:
    """Returns the exit status of `watm tunnel`, and its output."""
    command = [WATM, "tunnel", folder / "wg0.conf", "--module", WIREGUARD, "--unsealed"]
    command += ["--state", folder / "state.json", *options]
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE)
    async with asyncio.timeout(LIMIT):
        _, said = await process.communicate()
    return process.returncode, said.decode()
