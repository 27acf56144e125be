"""Shadowsocks as a mode of mitmproxy: flows have the clients' destinations."""

import asyncio
import json
import subprocess
from pathlib import Path

from watm_test_support.mitmproxy_programs import Program, start

from .methods import EIH, LIBEV, password
from .ours import config, dial
from .peers import HOST, LIMIT, Libev
from .services import associate, connect, echo, exchange


async def shadowsocks(program: Program) -> int:
    """Returns the port of its server."""
    return int((await program.wait_for(r"Shadowsocks server listening at .*:(\d+)")).group(1))


def mode(folder: Path, configuration: str) -> tuple[str, str]:
    """Returns the arguments for a server with this configuration."""
    path = folder / "shadowsocks.json"
    path.write_text(configuration)
    return "--mode", f"watm:shadowsocks?config={path}@{HOST}:0"


async def test_flows_are_the_clients(tmp_path) -> None:
    method = LIBEV[3]
    async with echo() as port, start("mitmdump-watm", tmp_path, *mode(tmp_path, config(method))) as program:
        server = await shadowsocks(program)
        async with Libev.client(tmp_path, method, server) as socks:
            command = ["curl", "-sS", "--socks5-hostname", f"{HOST}:{socks}", f"http://localhost:{port}/page"]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=LIMIT, check=True)
            assert done.stdout == b"from inside /page"
            page = await program.flow(flow="http", url=f"http://localhost:{port}/page")
            assert page["server"] == ["localhost", port]
            # A flow that is not HTTP, to an address.
            assert await exchange(*await connect(socks, "127.0.0.1", port), b"question") == b"question"
            stream = await program.flow(flow="tcp", content="question", from_client=True)
            assert stream["server"] == [HOST, port]
            assert await associate(socks, port, [b"hello"]) == [b"hello"]
            datagrams = await program.flow(flow="udp", content="hello", from_client=True)
            assert datagrams["server"] == [HOST, port]
            for flow in (page, stream, datagrams):
                assert flow["peername"][0] == HOST
                assert flow["peername"][1] not in (server, socks, port)
                assert flow["sockname"][1] == port
                assert flow["peer"] is None
    assert "Traceback" not in program.text
    # The client configuration on the terminal.
    assert "ss://" in program.text


async def test_flows_say_which_user_they_are_of(tmp_path) -> None:
    method = EIH[0]
    users = [{"name": name, "password": password(method, seed)} for name, seed in (("alice", 2), ("bob", 3))]
    arguments = mode(tmp_path, config(method, users=users))
    async with echo() as port, start("mitmdump-watm", tmp_path, *arguments) as program:
        server = await shadowsocks(program)
        for seed, name in ((2, "alice"), (3, "bob")):
            both = f"{password(method)}:{password(method, seed)}"
            client = json.dumps({"method": method, "password": both, "server": HOST, "server_port": server})
            stream = await dial(client, "localhost", port, server)
            assert await exchange(stream, stream, name.encode()) == name.encode()
            flow = await program.flow(flow="tcp", content=name, from_client=True)
            assert flow["peer"] == name
            assert flow["server"] == ["localhost", port]
