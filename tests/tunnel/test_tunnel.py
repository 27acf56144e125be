"""`watm tunnel` with a file of wg-quick, and wireguard-go at the other end."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator

import pytest

from watm_test_support.ports import free_port
from watm_test_support.repository import WATM
from watm_test_support.wgclient import WgClientError

from .programs import INSIDE, LIMIT, OURS, WIREGUARD, Program, curl, peer, running, start, tunnel, tunnelling, udp

LOCAL = "127.0.0.1:0"
# A provider's file, except for the keys and the endpoint.
PROVIDERS = f"""\
# Device: laptop
MTU=1380 ; theirs
dns = {INSIDE} , Corp.Example,test
POSTUP = iptables -I OUTPUT ! -o %i -m mark ! --mark $(wg show %i fwmark) -j REJECT
Table = off

"""


async def test_a_providers_file_is_all_that_is_needed(tmp_path) -> None:
    async with peer(PROVIDERS, shared=True) as other:
        config = "\ufeff" + other.config.replace("Endpoint", "PersistentKeepAlive = 25\nENDPOINT").replace("\n", "\r\n")
        async with tunnelling(tmp_path, config, "--socks5", LOCAL, "--http", LOCAL) as near:
            # No client has connected yet.
            assert "at 127.0.0.1:" in await near.says("is up")
            socks, http = (f"127.0.0.1:{near.ports[what]}" for what in ("socks5", "http"))
            for proxy in (("--socks5-hostname", socks), ("--proxytunnel", "--proxy", http)):
                for name in ("inside.test", "inside", "INSIDE.Test."):
                    assert await curl(*proxy, f"http://{name}/") == (0, "inside"), (proxy, name)
                assert (await curl(*proxy, "http://nowhere/"))[0] != 0


async def test_standard_input_and_output_are_a_connection_that_closes_by_halves(tmp_path) -> None:
    async with peer(PROVIDERS) as other:
        data = bytes(range(256)) * 4096
        for options, told in (((), 0), (("--log", "info"), 1)):
            process = await tunnel(tmp_path, other.config, "--stdio", "inside.test:7", *options)
            async with asyncio.timeout(LIMIT):
                echoed, said = await process.communicate(data)
            assert (echoed == data, process.returncode) == (True, 0)
            # Users of ssh's ProxyCommand see this output each time.
            assert said.decode().count("PostUp") == told, said.decode()
        refused = await tunnel(tmp_path, other.config, "--stdio", f"{INSIDE}:81")
        async with asyncio.timeout(LIMIT):
            echoed, said = await refused.communicate()
        assert (echoed, refused.returncode) == (b"", 1)
        assert said.decode().endswith(f"watm: {INSIDE}:81: connection refused\n")


async def connected(port: int, to: str, to_port: int) -> int:
    """Returns the reply code of SOCKS5 for a connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\5\1\0" + b"\5\1\0\1" + socket.inet_aton(to) + to_port.to_bytes(2))
    async with asyncio.timeout(LIMIT):
        answer = await reader.readexactly(4)
    writer.close()
    return answer[3]


async def test_clients_of_proxies_are_told_what_the_other_end_says(tmp_path) -> None:
    async with peer() as other, tunnelling(tmp_path, other.config, "--socks5", LOCAL, "--http", LOCAL) as near:
        assert await connected(near.ports["socks5"], INSIDE, 7) == 0
        assert await connected(near.ports["socks5"], INSIDE, 81) == 5
        code, _ = await curl("--proxytunnel", "--proxy", f"127.0.0.1:{near.ports['http']}", f"http://{INSIDE}:81/")
        assert code == 56


@contextlib.asynccontextmanager
async def service() -> AsyncIterator[int]:
    """Runs an echo by TCP and UDP on one port of this machine."""

    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, address) -> None:
            self.transport.sendto(data, address)

    async def echo(reader, writer) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    port = free_port()
    server = await asyncio.start_server(echo, "127.0.0.1", port)
    loop = asyncio.get_running_loop()
    datagrams, _ = await loop.create_datagram_endpoint(Echo, ("127.0.0.1", port))
    yield port
    datagrams.close()
    server.close()


async def test_ports_are_forwarded_both_ways_and_others_are_refused(tmp_path) -> None:
    async with (
        peer() as other,
        service() as port,
        tunnelling(
            tmp_path, other.config,
            "--forward", f"udp:{LOCAL}={INSIDE}:7",
            "--reverse", f"tcp:{OURS}:8080=localhost:{port}",
            "--reverse", f"udp:0.0.0.0:53=127.0.0.1:{port}",
            "--reverse", f"tcp:{OURS}:8081=127.0.0.1:1",
        ) as near,
    ):  # fmt: skip
        assert await udp(near.ports["udp"], b"hello") == b"hello"
        client = other.client
        done = await client.do("halfclose", to=f"{OURS}:8080", size=300_000, timeout=LIMIT)
        assert (done["sent"], done["received"]) == (300_000, 300_000)
        done = await client.do("udp-echo", to=f"{OURS}:53", messages=20, size=1000)
        assert (done["messages"], done["lost"]) == (20, 0)
        # No program listens on this port, and no reverse port forward exists for it.
        with pytest.raises(WgClientError, match="reset"):
            async with client.tcp(f"{OURS}:8081") as refused:
                await refused.write(b"hello")
                await refused.read()
        for to in (f"{OURS}:53", f"{OURS}:81", "10.7.0.3:8080"):
            with pytest.raises(WgClientError, match="refused"):
                async with client.tcp(to):
                    pass
        await client.do("capture", on=True)
        assert (await client.do("udp-echo", to=f"{OURS}:8080", messages=1, wait_ms=500))["lost"] == 1
        # ICMP: destination unreachable, port unreachable.
        assert [packet[20:22] for packet in await client.captured() if packet[9] == 1] == [b"\3\3"]


async def test_a_bad_network_is_an_option_and_changes_with_the_file(tmp_path) -> None:
    async def round_trip(near: Program) -> float:
        begun = time.monotonic()
        assert await udp(near.ports["udp"], b"hello") == b"hello"
        return time.monotonic() - begun

    forward = ("--forward", f"udp:{LOCAL}={INSIDE}:7", "--watch-config")
    async with peer() as other:
        async with tunnelling(tmp_path, other.config, *forward, "--network", "delay=200ms") as near:
            await round_trip(near)
            assert await round_trip(near) >= 0.4
        async with tunnelling(tmp_path, other.config, *forward) as near:
            await round_trip(near)
            assert await round_trip(near) < 0.4
            file = tmp_path / "wg0.conf"
            for added, told in (
                ("[Watm]\nNetwork = delay=200ms\n", f"read {file} again"),
                ("[Watm]\nNetwork = delay=2\n", "'2' is not a time"),
                ("[Interface]\nDNS = 10.7.0.1\n", "Endpoint, Address, DNS, ListenPort or AllowedApps has changed; restart the tunnel to use it"),
            ):
                file.write_text(other.config + added)
                said = await near.says(str(file))
                assert told in said, said
                assert ("keeping the previous configuration" in said) == ("again" not in told), said
                assert await round_trip(near) >= 0.4
            file.write_text(other.config)
            await near.says(f"read {file} again")
            assert await round_trip(near) < 0.4


async def test_the_cause_of_a_tunnel_that_does_not_come_up_is_said(tmp_path) -> None:
    async def cause(name: str, config: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        async with tunnelling(folder, config, "--socks5", LOCAL) as near:
            return await near.says("WARN watm::module")

    async with peer() as other:
        endpoint = other.config.rpartition("Endpoint = ")[2].strip()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
            somebody.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{somebody.getsockname()[1]}"
            silent, nobody, strange = await asyncio.gather(
                cause("silent", other.config.replace(endpoint, place)),
                cause("nobody", other.config.replace(endpoint, "127.0.0.1:9")),
                cause("strange", other.config + f"PresharedKey = {'A' * 42}E=\n"),
            )
    assert f"at {place} does not answer" in silent
    assert "is unreachable: nothing listens at 127.0.0.1:9" in nobody
    assert "its handshake is not valid" in strange


@pytest.mark.parametrize(
    ("line", "options", "status", "said"),
    [
        ("", (), 2, "--socks5, --http, --forward, --reverse, --exec, --netns or --stdio"),
        ("", ("--reverse", "tcp:10.7.0.9:80=a:1"), 2, f"must be an Address of the file: {OURS}"),
        ("", ("--socks5", "0.0.0.0:1080"), 2, "require a login with --user"),
        ("", ("--module", "nowhere.wasm", "--socks5", LOCAL), 2, "nowhere.wasm: "),
        ("MTU = 12", ("--socks5", LOCAL), 1, "wg0.conf: configuration refused: line 4: [Interface] MTU: '12'"),
        ("Mtv = 1400", ("--socks5", LOCAL), 1, "line 4: [Interface] Mtv: unknown"),
        ("DNS = 1.1.1.1 what?", ("--socks5", LOCAL), 1, "line 4: [Interface] DNS: 'what?' is neither"),
        ("[Peer]\nPublicKey = abc", ("--socks5", LOCAL), 1, "line 5: [Peer] PublicKey: "),
    ],
    ids=str,
)
async def test_what_is_wrong_is_said_and_nothing_is_started(tmp_path, line, options, status, said) -> None:
    async with peer(f"{line}\n") as other:
        process = await tunnel(tmp_path, other.config, *options)
        _, error = await process.communicate()
        assert process.returncode == status
        assert said in error.decode()
        assert "listening" not in error.decode()


async def test_a_module_without_a_seal_is_refused_with_the_option_that_runs_it(tmp_path) -> None:
    command = [WATM, "dial", WIREGUARD, "127.0.0.1:9", "--udp", "--state", tmp_path / "state.json"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(LIMIT):
        _, said = await process.communicate()
    assert process.returncode == 2
    assert said.decode().endswith("(watm seal); for development, allow it with --unsealed\n")


async def test_a_tunnel_without_an_endpoint_is_refused_or_waits_at_its_port(tmp_path) -> None:
    async with peer() as other:
        head, _, section = other.config.partition("[Peer]")
        nowhere = head + "[Peer]" + section.partition("Endpoint")[0]
        for config, said in (
            (head, "wg0.conf: has no [Peer] section, so there is no server to connect to; add one with"),
            (nowhere, "wg0.conf: no [Peer] has an Endpoint, so there is no server to connect to; add Endpoint ="),
        ):
            process = await tunnel(tmp_path, config, "--socks5", LOCAL)
            async with asyncio.timeout(LIMIT):
                _, error = await process.communicate()
            assert process.returncode == 2
            assert said in error.decode()
        # A peer that knows the port can begin.
        port = free_port()
        waiting = f"{head}ListenPort = {port}\n[Peer]{section.partition('Endpoint')[0]}"
        process = await tunnel(tmp_path, waiting, "--socks5", LOCAL)
        async with running(process, ("--socks5",)) as near:
            await other.client.do("server", address=f"127.0.0.1:{port}")
            await other.client.do("handshake", timeout=LIMIT)
            await near.says("is up")
            assert await curl("--socks5", f"127.0.0.1:{near.ports['socks5']}", f"http://{INSIDE}/") == (0, "inside")


@pytest.mark.parametrize("rule", ["AllowedApps = firefox", "DisallowedApps = curl"])
async def test_rules_for_applications_are_refused_and_not_ignored(tmp_path, rule) -> None:
    """Checks that rules for applications are refused, because neither program knows the application of a connection."""
    async with peer() as other:
        config = other.config + rule + "\n"
        path = tmp_path / "client.conf"
        path.write_text(config)
        options = ("--socks5", LOCAL)
        for process in (
            await tunnel(tmp_path, config, *options),
            await start(tmp_path, "--config", path, "--udp", *options),
        ):
            _, error = await process.communicate()
            assert process.returncode == 1
            line = len(config.splitlines())
            name = rule.partition(" ")[0]
            assert f"line {line}: [Peer] {name}: a module does not know which application" in error.decode()
            assert "listening" not in error.decode()
