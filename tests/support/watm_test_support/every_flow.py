"""A flow of each kind, from a client inside the tunnel to the observer: see observer.py."""

from pathlib import Path

from mitmproxy_watm.wireguard import pubkey
from watm_test_support.mitmproxy_programs import Program, client, keys_in


async def check_every_kind_of_flow(program: Program, confdir: Path, port: int) -> None:
    """Checks HTTP, HTTPS, DNS, TCP and UDP. `confdir` has the keys, and `port` is the server's."""
    keys = keys_in(confdir)
    async with client(confdir, port) as inside:
        about = {"peer": pubkey(keys.client)}
        answer = await inside.do("http", url="http://10.9.8.7/plain")
        assert answer["status"] == 200
        flow = await program.flow(flow="http", url="http://10.9.8.7/plain", **about)
        assert flow["peername"][0] == "10.0.0.1"
        assert flow["sockname"] == flow["server"] == ["10.9.8.7", 80]
        assert flow["metadata"]["watm_peer"] == flow["copied"] == about["peer"]
        assert flow["metadata"]["watm_endpoint"].startswith("127.0.0.1:")

        ca = str(confdir / "mitmproxy-ca-cert.pem")
        answer = await inside.do("http", url="https://secret.example/tls", address="10.9.8.7", ca_file=ca)
        assert answer["status"] == 200
        flow = await program.flow(flow="https", url="https://secret.example/tls", **about)
        assert flow["sockname"] == ["10.9.8.7", 443]

        answer = await inside.do("dns", name="only.here")
        assert answer["addresses"] == ["203.0.113.7"]
        flow = await program.flow(flow="dns", name="only.here", **about)
        assert flow["sockname"] == ["10.0.0.53", 53]
        assert flow["copied"] == about["peer"]

        async with inside.tcp("10.9.8.7:7") as connection:
            await connection.write(b"over tcp")
            assert await connection.read() == b"OVER TCP"
            await connection.close_write()
            assert await connection.read_all() == b""
        flow = await program.flow(flow="tcp", content="OVER TCP", from_client=False, **about)
        assert flow["copied"] == about["peer"]

        async with inside.udp("10.9.8.7:7") as datagrams:
            for text in ("one", "two"):
                await datagrams.write(text.encode())
                assert await datagrams.read() == text.upper().encode()
        flow = await program.flow(flow="udp", content="TWO", from_client=False, **about)
        assert flow["copied"] == about["peer"]
        # The destination that mitmproxy was about to connect to, before the observer redirected it.
        assert {tuple(note["connect"]) for note in program.notes("connect")} == {("10.9.8.7", 7)}
