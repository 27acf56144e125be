"""Out through proxies of SOCKS5 and HTTP that other people wrote."""

import asyncio
import contextlib
import json
import subprocess
from pathlib import Path

from watm_test_support.ports import free_port

from .ends import LIMIT, fetch, flow, page, proxy, route, upstream, written
from .proxies import HOST, HTTP_PASSWORD, PASSWORD, USER, dante, microsocks, running, ssh, tinyproxy
from .test_others import Upper, exchange

DNSMASQ = ["dnsmasq", "--no-daemon", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--bind-interfaces"]


def with_user(folder: Path, name: str, server: str, password: str) -> tuple[str, str]:
    """The option for an upstream of this name, with the user in a file."""
    config = json.dumps({"server": server, "user": USER, "password": password})
    return upstream(f"{name}=socks5?config={written(folder, f'{name}.json', config)}")


async def test_a_socks_proxy_carries_streams(tmp_path) -> None:
    async with page("behind SOCKS") as there, microsocks() as server:
        async with proxy(tmp_path, *upstream(f"socks5?server={HOST}:{server}")) as (program, port):
            for host in (HOST, "localhost"):
                assert await fetch(port, f"http://{host}:{there}/") == "behind SOCKS"
            assert (await flow(program, address=["localhost", there]))["upstream"] == "socks5"
            # Nobody listens there. The reason is the one that the proxy gives.
            await fetch(port, f"http://{HOST}:{free_port()}/")
            async with asyncio.timeout(LIMIT):
                await program.wait_for(r"through socks5: .*the SOCKS5 proxy answered: connection refused \(reply 5\)")


async def test_a_socks_proxy_knows_its_users(tmp_path) -> None:
    async with page("for alice") as there, microsocks("-u", USER, "-P", PASSWORD) as server:
        address = f"{HOST}:{server}"
        options = with_user(tmp_path, "right", address, PASSWORD) + with_user(tmp_path, "wrong", address, "wrong horse")
        options += upstream(f"none=socks5?server={address}")
        options += route("127.0.0.1=right") + route("127.0.0.2=wrong") + route("127.0.0.3=none")
        async with proxy(tmp_path, *options) as (program, port):
            assert await fetch(port, f"http://127.0.0.1:{there}/") == "for alice"
            for host in ("127.0.0.2", "127.0.0.3"):
                await fetch(port, f"http://{host}:{there}/")
            async with asyncio.timeout(LIMIT):
                await program.wait_for("through wrong: .*the SOCKS5 proxy refused the user or the password")
                await program.wait_for("through none: .*the SOCKS5 proxy wants a user and a password")
            assert "wrong horse" not in program.text


async def test_ssh_is_a_proxy(tmp_path) -> None:
    async with page("behind ssh") as there, ssh(tmp_path) as server:
        async with proxy(tmp_path, *upstream(f"socks5?server=socks5://{HOST}:{server}")) as (_, port):
            assert await fetch(port, f"http://localhost:{there}/") == "behind ssh"


async def test_an_http_proxy_carries_streams(tmp_path) -> None:
    async with page("behind HTTP") as there, tinyproxy(tmp_path, there) as server:
        address = f"http://{HOST}:{server}"
        options = with_user(tmp_path, "right", address, HTTP_PASSWORD) + upstream(f"none=socks5?server={address}")
        options += route("localhost=right") + route("127.0.0.1=none")
        async with proxy(tmp_path, *options) as (program, port):
            assert await fetch(port, f"http://localhost:{there}/") == "behind HTTP"
            # tinyproxy connects to no other port.
            await fetch(port, f"http://localhost:{free_port()}/")
            await fetch(port, f"http://127.0.0.1:{there}/")
            async with asyncio.timeout(LIMIT):
                await program.wait_for("through right: .*the HTTP proxy answered: 403")
                await program.wait_for("through none: .*the HTTP proxy answered: 407 Proxy Authentication Required")


async def test_a_socks_proxy_carries_datagrams(tmp_path) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Upper, local_addr=(HOST, 0))
    with contextlib.closing(transport):
        echo = transport.get_extra_info("sockname")[1]
        async with dante(tmp_path) as server:
            option = upstream(f"socks5?server={HOST}:{server}")
            # A name, which the proxy looks up. The next test has an address.
            async with proxy(tmp_path, *option, mode=f"reverse:udp://localhost:{echo}") as (program, port):
                assert await exchange(port, b"hello") == b"HELLO"
                assert (await flow(program, flow="udp", said="HELLO"))["upstream"] == "socks5"
        # microsocks has no UDP.
        async with microsocks() as server:
            option = upstream(f"socks5?server={HOST}:{server}")
            async with proxy(tmp_path, *option, mode=f"reverse:udp://{HOST}:{echo}") as (program, port):
                with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                    async with asyncio.timeout(0.3):
                        await exchange(port, b"hello")
                async with asyncio.timeout(LIMIT):
                    await program.wait_for(r"no UDP: the SOCKS5 proxy answered: command not supported \(reply 7\)")


async def test_names_are_looked_up_through_a_socks_proxy(tmp_path) -> None:
    port = free_port()
    async with running(port, *DNSMASQ, f"--port={port}", f"--listen-address={HOST}", "--address=/inside.test/192.0.2.7"):
        async with dante(tmp_path) as server:
            option = upstream(f"socks5?server={HOST}:{server}")
            async with proxy(tmp_path, *option, mode=f"reverse:dns://{HOST}:{port}") as (program, near):
                dig = ["dig", "+short", "+tries=1", "+timeout=10", f"@{HOST}", "-p", str(near), "inside.test"]
                done = await asyncio.to_thread(subprocess.run, dig, capture_output=True, timeout=LIMIT, check=True)
                assert done.stdout == b"192.0.2.7\n"
                assert (await flow(program, flow="dns", said=["192.0.2.7"]))["upstream"] == "socks5"
