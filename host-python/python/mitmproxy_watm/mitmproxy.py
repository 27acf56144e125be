"""The proxy mode `watm:` for mitmproxy. Importing this registers it, once a process.

    watm:wireguard@51820              the WireGuard module of this package
    watm:/path/to/x.wasm@[::1]:51820  any module
    watm:wireguard?config=wg0.conf    with a configuration in the module's own format
    watm:x.wasm?to=example.com:443@80 a module whose connections name no destination

A module whose name begins with "wireguard" and that has no `config` gets the keys in mitmproxy's
`wireguard.conf`, or in the file that the option `keys` names. The option `to` is the destination of
a WATER module's connections; with a scheme (http, https, tcp, tls) they are handled as in
mitmproxy's reverse mode. The options `pcap` and `key_log` name files for captures of the packets in
its tunnels, and of their keys. Options that are none of these, nor `record` and `transport`, go to
the module: `watm:wireguard?mtu=1280`. In a path, "%" begins an encoded character: write "%25" for
"%", and "%3f" for "?".

Connections of mitmproxy to servers can use a module too, whichever mode a client uses:

    watm_upstream=wireguard?config=wg0.conf   all of them, through a WireGuard client
    watm_upstream=ss=shadowsocks?config=ss.json
    watm_route=*.example.com=ss               connections to these hosts
    watm_route=10.0.0.0/8=direct              bypasses all upstreams

An addon chooses with `use_upstream`, best in the hook `server_connect`; `upstream_of` returns the
choice.

Add `Watm()` to the addons of a mitmproxy of your own. `peer` returns the peer behind a flow,
and `process` the process of a program that `exec` runs.
"""

from mitmproxy_watm.supported import check

check()  # before anything here imports a part of mitmproxy that an old one lacks

from mitmproxy_watm.mode.addon import Watm  # noqa: E402
from mitmproxy_watm.mode.instance import WatmInstance  # noqa: E402
from mitmproxy_watm.mode.mode import WatmMode  # noqa: E402
from mitmproxy_watm.mode.peers import Peer, peer  # noqa: E402
from mitmproxy_watm.mode.process import Process, process  # noqa: E402
from mitmproxy_watm.upstream.choice import upstream_of, use_upstream  # noqa: E402

__all__ = ["Peer", "Process", "Watm", "WatmInstance", "WatmMode", "peer", "process", "upstream_of", "use_upstream"]
