"""TLS as a mode of mitmproxy: the clients and destinations of flows."""

import asyncio
import ssl

import pytest

from watm_test_support.certificates import Authority, Leaf
from watm_test_support.mitmproxy_programs import start

from .backends import backend, echo
from .peers import HOST, LIMIT, written


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind a balancer"])
async def test_flows_are_the_clients(behind: bool, authority: Authority, localhost: Leaf, tmp_path) -> None:
    config = {"certificates": [localhost.pair]} | ({"proxy-in": {"from": "any"}} if behind else {})
    path = written(config, tmp_path, "tls.json")
    async with backend(echo) as to:
        mode = f"watm:tls?config={path}&to={HOST}:{to}@{HOST}:0"
        async with start("mitmdump-watm", tmp_path, "--mode", mode) as program, asyncio.timeout(LIMIT):
            port = int((await program.wait_for(r"TLS server listening at .*:(\d+)")).group(1))
            reader, writer = await asyncio.open_connection(HOST, port)
            client = list(writer.get_extra_info("sockname"))
            if behind:
                client = ["192.0.2.7", 5555]
                writer.write(f"PROXY TCP4 192.0.2.7 {HOST} 5555 443\r\n".encode())
            context = ssl.create_default_context(cadata=authority.pem)
            await writer.start_tls(context, server_hostname="localhost")
            writer.write(b"question")
            assert await reader.readexactly(8) == b"question"
            writer.close()
            flow = await program.flow(flow="tcp", content="question", from_client=True)
            assert flow["peername"] == client
            assert flow["server"] == [HOST, to]
