"""The servers for a device: mitmproxy's own and the module, with the same handlers. Each runs in a
network of its own."""

from typing import Any

from watm_test_support import services

from . import networks

HANDLERS: dict[str, Any] = {"handle_tcp_stream": services.handle_tcp, "handle_udp_stream": services.handle_udp}


async def start(kind: str, mtu: int) -> Any:
    """Starts one kind of server for a device of this MTU."""
    if kind == "tun-native":
        from mitmproxy_rs import tun

        server = await tun.create_tun_interface(**HANDLERS, tun_name=networks.DEVICE)
        # It has made the device, for packets of 64 KiB.
        networks.configure(mtu, make=False)
        return server

    import mitmproxy_watm

    networks.configure(mtu, make=True)
    return await mitmproxy_watm.start_server("tun", None, 0, device=networks.DEVICE, **HANDLERS)
