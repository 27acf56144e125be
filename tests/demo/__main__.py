"""`make demo`: a real WireGuard client's traffic, seen in mitmproxy.

Starts servers on this machine, mitmdump with the WireGuard module, and onetun as the client,
each in a process of its own. Fetches pages, resolves a name and sends a datagram through the
tunnel, and prints the flows that mitmproxy saw. Exits with 1 and a reason if any is missing.
"""

import argparse
import contextlib
import json
import pathlib
import re
import shutil
import signal
import sys

from mitmproxy_watm.wireguard import pubkey
from watm_test_support.children import Child, Missing, child
from watm_test_support.ports import free_port
from watm_test_support.repository import ROOT

from . import fetch, origin

FOLDER = ROOT / "build" / "demo"
# The client's side of mitmproxy's own WireGuard mode; the name server is mitmproxy itself.
CLIENT_ADDRESS, NAME_SERVER = "10.0.0.1", "10.0.0.53"
# Neither name exists outside the demo.
NAME, ADDRESS = "watm.test", "10.9.8.7"
# onetun carries UDP to one address only, which must be the name server's.
UDP_ADDRESS, UDP_PORT = NAME_SERVER, 4000
ONETUN_START, MITMPROXY_START = 20, 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__.partition("\n")[0])
    parser.add_argument("--onetun", type=pathlib.Path, required=True, help="the WireGuard client's program")
    options = parser.parse_args()
    # Ends the children when the demo is terminated.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True, mode=0o700)
    try:
        show(options.onetun)
    except Missing as missing:
        print(f"demo: {missing}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1
    return 0


def show(onetun: pathlib.Path) -> None:
    """Runs the whole demo. Raises `Missing`."""
    authority, host_file = origin.certify(FOLDER, NAME)
    notes = FOLDER / "notes.jsonl"
    notes.touch()
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(origin.serve(host_file))
        print(f"serving http, https and udp on 127.0.0.1, ports {', '.join(map(str, servers.values()))}")

        port = free_port()
        mitmproxy = stack.enter_context(
            child("mitmdump-watm", _mitmdump(port, authority, notes, servers), FOLDER / "mitmdump.log")
        )
        keys_file = FOLDER / "wireguard.conf"
        mitmproxy.wait_for(
            "the WireGuard server did not start",
            lambda: f"listening at 127.0.0.1:{port}" in mitmproxy.said() and keys_file.exists(),
            MITMPROXY_START,
        )
        keys = json.loads(keys_file.read_text())
        print(f"mitmdump runs wireguard.wasm on 127.0.0.1:{port}/udp")

        ports = {name: free_port() for name in _FORWARDED}
        client = stack.enter_context(child("onetun", _onetun(onetun, port, keys, ports), FOLDER / "onetun.log"))
        client.wait_for(
            "onetun did not open its ports",
            lambda: len(re.findall("Tunneling (?:TCP|UDP)", client.said())) == len(ports),
            ONETUN_START,
        )
        print(f"onetun is the client {pubkey(keys['client_key'])}")

        _visit(ports)
        _show_flows(notes, mitmproxy, pubkey(keys["client_key"]))


_FORWARDED = ("http", "https", "dns", "udp")


def _mitmdump(port: int, authority: pathlib.Path, notes: pathlib.Path, servers: dict[str, int]) -> list:
    inner = {"http": f"{ADDRESS}:80", "https": f"{ADDRESS}:443", "udp": f"{UDP_ADDRESS}:{UDP_PORT}"}
    settings = [
        f"confdir={FOLDER}",
        f"ssl_verify_upstream_trusted_ca={authority}",
        f"demo_name={NAME}",
        f"demo_address={ADDRESS}",
        f"demo_notes={notes}",
        *(f"demo_servers={inner[name]}={here}" for name, here in servers.items()),
    ]
    program = pathlib.Path(sys.executable).with_name("mitmdump-watm")
    command = [program, "--mode", f"watm:wireguard@127.0.0.1:{port}", "-s", ROOT / "tests" / "demo" / "addon.py"]
    for setting in settings:
        command += ["--set", setting]
    return command


def _onetun(program: pathlib.Path, port: int, keys: dict[str, str], ports: dict[str, int]) -> list:
    keys_file = FOLDER / "onetun.key"
    keys_file.touch(mode=0o600)
    keys_file.write_text(keys["client_key"])
    return [
        program,
        f"127.0.0.1:{ports['http']}:{ADDRESS}:80:TCP",
        f"127.0.0.1:{ports['https']}:{ADDRESS}:443:TCP",
        f"127.0.0.1:{ports['dns']}:{NAME_SERVER}:53:UDP",
        f"127.0.0.1:{ports['udp']}:{UDP_ADDRESS}:{UDP_PORT}:UDP",
        f"--private-key-file={keys_file}",
        f"--endpoint-public-key={pubkey(keys['server_key'])}",
        f"--endpoint-addr=127.0.0.1:{port}",
        f"--source-peer-ip={CLIENT_ADDRESS}",
        "--endpoint-bind-addr=127.0.0.1:0",
    ]


def _visit(ports: dict[str, int]) -> None:
    with _explained(f"the name {NAME} was not resolved"):
        found = fetch.address(ports["dns"], NAME)
    _expect(found == ADDRESS, f"{NAME} was resolved to {found or 'nothing'} and not to {ADDRESS}")
    print(f"{NAME} is {found}, says {NAME_SERVER}")

    with _explained(f"http://{NAME}/ did not come"):
        page = fetch.page(ports["http"], NAME)
    _expect((page.status, page.body) == (200, origin.PAGE), f"http://{NAME}/ is another page, status {page.status}")
    print(f"http://{NAME}/: {page.body.decode().strip()}")

    with _explained(f"https://{NAME}/ did not come"):
        page, issuer = fetch.secure_page(ports["https"], NAME, FOLDER / "mitmproxy-ca-cert.pem")
    _expect((page.status, page.body) == (200, origin.PAGE), f"https://{NAME}/ is another page, status {page.status}")
    _expect(issuer == "mitmproxy", f"https://{NAME}/ came with a certificate by {issuer}, not by mitmproxy")
    print(f"https://{NAME}/, with a certificate by {issuer}: {page.body.decode().strip()}")

    with _explained("the datagram was not answered"):
        answer = fetch.datagram(ports["udp"], b"hello")
    _expect(answer == origin.UDP_GREETING + b"hello", f"the datagram's answer was {answer!r}")
    print(f"udp {UDP_ADDRESS}:{UDP_PORT}: {answer.decode()}")


def _show_flows(notes: pathlib.Path, mitmproxy: Child, peer: str) -> None:
    def kinds() -> set[str]:
        return {note["kind"] for note in _read(notes)}

    mitmproxy.wait_for("mitmproxy did not see all flows", lambda: kinds() >= set(_FORWARDED), 5)
    print("\nmitmproxy saw:")
    for note in _read(notes):
        _expect(note["peer"] == peer, f"mitmproxy took the flow {note['what']!r} for peer {note['peer']}")
        print(f"  {note['kind']:5} {note['from']} -> {note['to']} (peer {note['peer']}): {note['what']}")


def _read(notes: pathlib.Path) -> list[dict]:
    # The last line may be half written.
    return [json.loads(line) for line in notes.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Missing(otherwise)


@contextlib.contextmanager
def _explained(what: str):
    try:
        yield
    except Exception as error:  # without an answer, the flow is missing
        raise Missing(f"{what}: {error or type(error).__name__}") from error


sys.exit(main())
