"""Upstreams through a WireGuard client to wireguard-go."""

import asyncio
import json
import re

import pytest

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.wgclient import WgClient

from .ends import FOLDER, INSIDE, LIMIT, fetch, flow, page, proxy, route, upstream, vpn, written


@pytest.mark.parametrize("strategy", ["lazy", "eager"])
async def test_all_goes_out_by_name_and_by_address(tmp_path, strategy: str) -> None:
    async with vpn() as config:
        conf = written(tmp_path, "wg0.conf", config)
        options = [*upstream(f"wireguard?config={conf}"), "--set", f"connection_strategy={strategy}"]
        async with proxy(tmp_path, *options) as (program, port):
            assert await fetch(port, "http://inside.test/") == "inside"
            assert await fetch(port, f"http://{INSIDE}/") == "inside"
            # `--proxytunnel` makes mitmproxy connect after a CONNECT.
            assert await fetch(port, f"http://{INSIDE}/", "--proxytunnel") == "inside"
            found = await flow(program, flow="http", address=["inside.test", 80])
            assert (found["upstream"], found["saved"]) == ("wireguard", "wireguard")
            assert found["peername"] == [INSIDE, 80]
            status = json.loads(await program.ask(command="watm.status.json"))
            assert (status[-1]["upstream"], status[-1]["phase"]) == ("wireguard", "running")
            assert status[-1]["peers"][0]["last_handshake"] is not None
            # Log lines are readable text.
            assert re.search(r"\bwireguard: handshake with peer \S+ at 127\.0\.0\.1:\d+ completed$", program.text, re.MULTILINE)
            assert not re.search(r"connected from|server=|part=", program.text)


async def test_tunnel_in_and_tunnel_out(tmp_path) -> None:
    keys = {"server_key": genkey(), "client_key": genkey()}
    written(tmp_path, "wireguard.conf", json.dumps(keys))
    async with vpn() as config:
        conf = written(tmp_path, "wg0.conf", config)
        async with proxy(tmp_path, *upstream(f"wireguard?config={conf}"), mode="watm:wireguard") as (program, port):
            client = {"private_key": keys["client_key"], "peer_public_key": pubkey(keys["server_key"])}
            async with WgClient.start(server=f"127.0.0.1:{port}", **client) as device:
                # Queries for this machine's resolver go to the one behind the tunnel.
                answer = await device.do("dns", name="inside.test")
                assert answer["addresses"] == [INSIDE], answer
                assert (await flow(program, flow="dns"))["upstream"] == "wireguard"
                async with device.tcp(f"{INSIDE}:80") as page:
                    await page.write(b"GET / HTTP/1.1\r\nHost: inside.test\r\nConnection: close\r\n\r\n")
                    assert (await page.read_all()).endswith(b"inside")
                async with device.udp(f"{INSIDE}:7") as datagrams:
                    await datagrams.write(b"hello")
                    assert await datagrams.read() == b"hello"
            found = await flow(program, flow="udp", said="hello")
            assert (found["upstream"], found["address"]) == ("wireguard", [INSIDE, 7])


async def test_routes_send_the_first_that_fits(tmp_path) -> None:
    # Each has a key of its own, because a server answers only the last client of a key.
    async with vpn() as first, vpn() as second, page("outside") as here:
        files = written(tmp_path, "wg0.conf", first), written(tmp_path, "all.conf", second)
        options = [*upstream(f"wg0=wireguard?config={files[0]}"), *upstream(f"all=wireguard?config={files[1]}")]
        options += [*route("127.0.0.0/8=direct"), *route("*.test:80=wg0"), *route("*=all")]
        async with proxy(tmp_path, *options) as (program, port):
            assert await fetch(port, f"http://127.0.0.1:{here}/") == "outside"
            assert await fetch(port, "http://inside.test/") == "inside"
            assert await fetch(port, f"http://{INSIDE}/") == "inside"
            assert (await flow(program, said="outside"))["upstream"] is None
            assert (await flow(program, address=["inside.test", 80]))["upstream"] == "wg0"
            assert (await flow(program, address=[INSIDE, 80]))["upstream"] == "all"
            assert await program.ask(command="watm.upstream.unload wg0") == (
                "CommandError: watm_route: *.test:80=wg0: no upstream wg0; available: all, direct"
            )
            assert await program.ask(command="watm.upstream.route *=direct") is None
            assert await fetch(port, f"http://127.0.0.1:{here}/") == "outside"
            listed = json.loads(await program.ask(command="watm.upstream.list"))
            assert [known["upstream"] for known in listed["upstreams"]] == ["wg0", "all"]
            assert listed["routes"][0] == "*=direct"


async def test_an_addon_chooses(tmp_path) -> None:
    async with vpn() as config, page("outside") as here:
        conf = written(tmp_path, "wg0.conf", config)
        options = [*upstream(f"wg0=wireguard?config={conf}"), "-s", str(FOLDER / "addons" / "chooser.py")]
        async with proxy(tmp_path, *options) as (program, port):
            assert await fetch(port, f"http://127.0.0.1:{here}/") == "outside"
            assert await fetch(port, f"http://{INSIDE}/", "-H", "x-upstream: wg0") == "inside"
            assert (await flow(program, said="inside"))["upstream"] == "wg0"
            # There is no fallback to another route.
            assert "which does not exist" in await fetch(port, "http://127.0.0.1:81/")


async def test_errors_are_told_apart(tmp_path) -> None:
    async with vpn() as config:
        conf = written(tmp_path, "wg0.conf", config)
        unknown = written(tmp_path, "unknown.conf", config.replace("PrivateKey = ", f"PrivateKey = {genkey()} #"))
        options = [*upstream(f"wireguard?config={conf}"), *upstream(f"unknown=wireguard?config={unknown}")]
        options += route("10.7.0.9=unknown")
        async with proxy(tmp_path, *options) as (program, port):
            silent = asyncio.create_task(fetch(port, "http://10.7.0.9/", "--max-time", "40"))
            refused = await fetch(port, f"http://{INSIDE}:9/")
            assert "502 Bad Gateway" in refused and "connection refused through wireguard" in refused
            assert "failed through wireguard: the name has no address (nowhere.test:80)" in await fetch(
                port, "http://nowhere.test/"
            )
            unanswered = await silent
            assert "timed out through unknown" in unanswered
            # The log names the possible causes, because a peer does not answer an unknown key.
            assert "does not answer: check that it is running, that its PublicKey is right, and that it knows our public key" in program.text


async def test_an_upstream_that_does_not_start_ends_the_start(tmp_path) -> None:
    conf = written(tmp_path, "wg0.conf", f"[Interface]\nPrivateKey = nonsense\n[Peer]\nPublicKey = {pubkey(genkey())}\nEndpoint = 127.0.0.1:9\n")
    async with proxy(tmp_path, *upstream(f"wireguard?config={conf}")) as (program, _):
        # The observer reads standard input, whose end stops the program.
        program.process.stdin.close()
        async with asyncio.timeout(LIMIT):
            assert await program.ended() == 1
        assert "The upstream wireguard does not run: " in program.text
        assert "line 2" in program.text


async def test_one_that_fails_while_mitmproxy_runs_lets_nothing_past(tmp_path) -> None:
    async with page("outside") as here, proxy(tmp_path) as (program, port):
        url = f"http://127.0.0.1:{here}/"
        assert await fetch(port, url) == "outside"
        # A failed command changes nothing.
        assert "missing.conf" in await program.ask(command="watm.upstream.load wireguard?config=missing.conf")
        assert await fetch(port, url) == "outside"
        assert await program.ask(options={"watm_upstream": ["wireguard?config=missing.conf"]}) is None
        assert "missing.conf" in await fetch(port, url)
        assert await program.ask(command="watm.upstream.unload wireguard") is None
        assert await fetch(port, url) == "outside"


async def test_tls_and_http2_are_spoken_through_a_tunnel(tmp_path) -> None:
    keys = {"server_key": genkey(), "client_key": genkey()}
    far_folder = tmp_path / "far"
    far_folder.mkdir()
    written(far_folder, "wireguard.conf", json.dumps(keys))
    answers = ["-s", str(FOLDER / "addons" / "answers.py")]
    async with proxy(far_folder, *answers, mode="watm:wireguard") as (_, far):
        conf = written(
            tmp_path, "wg0.conf",
            f"[Interface]\nPrivateKey = {keys['client_key']}\nAddress = 10.0.0.1/32\n[Peer]\n"
            f"PublicKey = {pubkey(keys['server_key'])}\nAllowedIPs = 0.0.0.0/0\nEndpoint = 127.0.0.1:{far}\n",
        )  # fmt: skip
        async with proxy(tmp_path, *upstream(f"wireguard?config={conf}"), "--ssl-insecure") as (program, port):
            assert await fetch(port, "https://10.9.8.7/", "--insecure", "--http2") == "far away"
            found = await flow(program, said="far away")
            assert (found["upstream"], found["version"]) == ("wireguard", "HTTP/2.0")


async def test_only_the_applications_of_its_rules_use_a_tunnel(tmp_path) -> None:
    async with vpn() as config:
        conf = written(tmp_path, "wg0.conf", config + "AllowedApps = firefox\n")
        async with proxy(tmp_path, *upstream(f"wireguard?config={conf}")) as (program, port):
            # A regular proxy does not know the application, so no rule matches.
            assert "not allowed through wireguard" in await fetch(port, f"http://{INSIDE}/")


async def test_an_upstream_is_swapped(tmp_path) -> None:
    async with vpn() as config:
        conf = written(tmp_path, "wg0.conf", config)
        async with proxy(tmp_path, *upstream(f"wg0=wireguard?config={conf}"), *route("*=wg0")) as (program, port):
            assert await fetch(port, f"http://{INSIDE}/") == "inside"
            assert await program.ask(command="watm.swap wg0 wireguard") is None
            async with asyncio.timeout(LIMIT):
                await program.wait_for("wg0: now running wireguard for new connections")
            assert await fetch(port, f"http://{INSIDE}/") == "inside"
            status = json.loads(await program.ask(command="watm.status.json"))
            assert status[-1]["generation"] == 1
            assert "missing.wasm: No such file" in await program.ask(command="watm.swap wg0 missing.wasm")
            assert await fetch(port, f"http://{INSIDE}/") == "inside"
