"""Chains of upstreams: each goes out through another one."""

import json

from watm_test_support.certificates import Authority
from watm_test_support.haproxy import configured
from watm_test_support.ports import free_port

from .ends import INSIDE, fetch, flow, page, proxy, upstream, vpn, written
from .proxies import HOST, HTTP_PASSWORD, USER, dante, microsocks, running, tinyproxy

HAPROXY = """
frontend tls
    bind {host}:{port} ssl crt {pem}
    default_backend proxy
backend proxy
    server proxy {host}:{proxy}
"""


async def status_of(program, name: str) -> dict:
    """Returns the status of an upstream."""
    found = json.loads(await program.ask(command="watm.status.json"))
    return next(facts for facts in found if facts.get("upstream") == name)


async def test_a_tunnel_goes_through_a_socks_proxy(tmp_path) -> None:
    async with vpn() as config, dante(tmp_path) as server:
        conf = written(tmp_path, "wg0.conf", config)
        # The order does not matter.
        options = [*upstream(f"wireguard?config={conf}&through=near"), *upstream(f"near=socks5?server={HOST}:{server}")]
        async with proxy(tmp_path, *options) as (program, port):
            assert await fetch(port, "http://inside.test/") == "inside"
            assert await fetch(port, f"http://{INSIDE}/") == "inside"
            assert (await flow(program, address=["inside.test", 80]))["upstream"] == "wireguard"
            near, tunnel = await status_of(program, "near"), await status_of(program, "wireguard")
            assert (near["through"], tunnel["through"]) == (None, "near")
            # The tunnel's datagrams, and nothing else of mitmproxy's.
            assert near["flows"] == 1
            assert near["counters"]["host.flows_opened"] == 1
            # It cannot go as long as another one needs it.
            assert await program.ask(command="watm.upstream.unload near") == (
                "CommandError: watm_upstream: option through of wireguard: no upstream near; available: none"
            )


async def test_a_proxy_behind_a_proxy(tmp_path) -> None:
    async with page("behind two") as there, microsocks() as far, tinyproxy(tmp_path, far) as first:
        config = written(tmp_path, "near.json", json.dumps({"user": USER, "password": HTTP_PASSWORD}))
        near = f"near=socks5?config={config}&server=http://{HOST}:{first}"
        options = [*upstream(near), *upstream(f"far=socks5?server={HOST}:{far}&through=near")]
        async with proxy(tmp_path, *options, "--set", "watm_route=*=far") as (program, port):
            assert await fetch(port, f"http://{HOST}:{there}/") == "behind two"
            assert (await status_of(program, "near"))["counters"]["host.flows_opened"] == 1
            # tinyproxy connects to no other port.
            other = f"http://{HOST}:{free_port()}"
            assert await program.ask(command=f"watm.upstream.load far=socks5?server={other}&through=near") is None
            await fetch(port, f"http://{HOST}:{there}/")
            await program.wait_for(r"through far: .*403")


async def test_an_https_proxy(tmp_path) -> None:
    authority = Authority("a root")
    own = authority.sign("localhost", names=["localhost"])
    pem = written(tmp_path, "own.pem", own.pem)
    async with page("behind TLS") as there, tinyproxy(tmp_path, there) as server:
        port = free_port()
        haproxy = configured(tmp_path, HAPROXY.format(host=HOST, port=port, pem=pem, proxy=server))
        roots = written(tmp_path, "tls.json", json.dumps({"server": {"roots": authority.pem}}))
        user = {"server": f"http://localhost:{port}", "user": USER, "password": HTTP_PASSWORD}
        config = written(tmp_path, "proxy.json", json.dumps(user))
        options = [*upstream(f"tls=tls?config={roots}"), *upstream(f"socks5?config={config}&through=tls")]
        async with running(port, "haproxy", "-db", "-f", haproxy), proxy(tmp_path, *options) as (_, near):
            assert await fetch(near, f"http://{HOST}:{there}/") == "behind TLS"


async def test_a_chain_whose_first_part_does_not_run(tmp_path) -> None:
    options = [*upstream("near=socks5?server=nowhere"), *upstream("far=socks5?server=127.0.0.1:9&through=near")]
    async with proxy(tmp_path, *options) as (program, _):
        program.process.stdin.close()
        assert await program.ended() == 1
        assert "The upstream far does not run: near, which it goes through, does not run: " in program.text
