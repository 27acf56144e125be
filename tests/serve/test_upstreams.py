"""Upstreams of `watm serve`: paths, an address by the client's family, and the flow's own destination."""

import subprocess

import pytest

from watm_test_support.haproxy import configured
from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES
from watm_test_support.watm_serve import HOST, serving

from .behind import nginx
from .programs import listens, wait_for


def curl(url: str, *options: str) -> str:
    command = ["curl", "--silent", "--show-error", "--fail", "--max-time", "10", *options, url]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("module", ["plain.wasm", "plain.watm1.wasm"])
def test_a_path_and_an_upstream_of_each_family(module, tmp_path):
    """Checks that nginx reads the client from the header, on a Unix socket."""
    path, port = tmp_path / "nginx.sock", free_port()
    servers = {
        f"unix:{path} proxy_protocol": "$proxy_protocol_addr by a path",
        f"{HOST}:{port}": "IPv4",
        f"[::1]:{port}": "IPv6",
    }
    config = f"""
[[listener]]
module = "{MODULES / module}"
addresses = ["{HOST}:0"]
upstream = "unix:{path}"
proxy-header = "v1"
workers = 1
[[listener]]
module = "{MODULES / module}"
addresses = ["[::]:0"]
upstream = {{ ipv4 = "{HOST}:{port}", ipv6 = "[::1]:{port}" }}
workers = 1
"""
    with nginx(tmp_path / "nginx", servers), serving(tmp_path / "watm", config) as running:
        running.wait_for("(?s)(listening on .*){2}")
        by_path, by_family = running.ports()
        assert curl(f"http://{HOST}:{by_path}/") == f"{HOST} by a path"
        assert curl(f"http://{HOST}:{by_family}/") == "IPv4"
        assert curl(f"http://[::1]:{by_family}/") == "IPv6"


def test_where_the_client_wants_as_far_as_that_is_allowed(application, start, tmp_path):
    """Checks destinations that haproxy sends in headers."""
    allowed, denied, other = free_port(), free_port(), free_port()
    config = f"""
[logs]
format = "json"
[[listener]]
module = "{MODULES / "proxy-protocol.wasm"}"
config = 'from = "{HOST}"'
addresses = ["tcp://{HOST}:0"]
upstream = "dynamic"
allow = ["{HOST}:{application}"]
workers = 1
"""
    with serving(tmp_path / "serve", config) as running:
        frontends = "".join(
            f"""
frontend to-{port}
    bind {HOST}:{front}
    tcp-request connection set-dst str({HOST})
    tcp-request connection set-dst-port int({port})
    default_backend watm
"""
            for front, port in [(allowed, application), (denied, other)]
        )
        # A refusal may arrive before haproxy notices that it is connected.
        backend = f"backend watm\n    retries 0\n    server one {HOST}:{running.port} send-proxy-v2"
        start("haproxy", "haproxy", "-f", configured(tmp_path, frontends + backend))
        # haproxy forwards requests, so a probe without one stays with haproxy.
        wait_for(lambda: listens(allowed), (tmp_path / "haproxy.log").read_text)
        assert len(curl(f"http://{HOST}:{allowed}/1000")) == 1000
        with pytest.raises(subprocess.CalledProcessError):
            curl(f"http://{HOST}:{denied}/1000")
        running.wait_for('"reason":"denied"')
        lines = [record for record in running.log().splitlines() if '"reason":"denied"' in record]
        assert len(lines) == 1 and f'"destination":"{HOST}:{other}"' in lines[0]
