"""A tunnel in a tunnel, a tunnel in a stream, and a stream in a tunnel, to wireguard-go, openssl and `watm`."""

import contextlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from watm_test_support.repository import MODULES, WATM
from watm_test_support.spaces import Space, run, spaces, wireguard_go

from .programs import WIREGUARD
from .services import MANY, counting, naming, running

OUTER, INNER = "10.7.0.1", "10.8.0.1"
OUTER_PORT, INNER_PORT, COUNTED, TLS = 51820, 51821, 7000, 4433
# The addresses that the modules send to first. They have no seal that allows them.
ALLOWED = ("--allow", f"udp://127.0.0.1:{OUTER_PORT}", "--allow", f"udp://{OUTER}:{INNER_PORT}")
HERE = 7001


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Space, Space, pathlib.Path]]:
    """Yields the client's namespace, the one inside the outer tunnel, and the folder of both
    configurations. The inner tunnel ends inside the outer one, and has a server that counts bytes.
    """
    folder = tmp_path_factory.mktemp("chains")
    with spaces(3) as (near, middle, far), contextlib.ExitStack() as stack:
        tunnels = (
            ("outer", near, middle, OUTER, "127.0.0.1", OUTER_PORT),
            ("inner", middle, far, INNER, OUTER, INNER_PORT),
        )
        for name, outside, inside, address, host, port in tunnels:
            server, client = configs(address, host, port, "")
            (folder / f"{name}.conf").write_text(client)
            stack.enter_context(wireguard_go(outside, inside, server, [f"{address}/24"]))
        stack.enter_context(counting(far, INNER, COUNTED))
        stack.enter_context(counting(middle, OUTER, COUNTED))
        yield near, middle, folder


def configs(address: str, host: str, port: int, settings: str) -> tuple[str, str]:
    """Returns the configurations of wireguard-go and of its client."""
    theirs, ours = run("wg", "genkey").strip(), run("wg", "genkey").strip()
    public = {key: run("wg", "pubkey", stdin=key).strip() for key in (theirs, ours)}
    client = address.rpartition(".")[0] + ".2/32"
    return (
        f"[Interface]\nPrivateKey = {theirs}\nListenPort = {port}\n"
        f"[Peer]\nPublicKey = {public[ours]}\nAllowedIPs = {client}\n",
        f"[Interface]\nPrivateKey = {ours}\nAddress = {client}\n{settings}"
        f"[Peer]\nPublicKey = {public[theirs]}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {host}:{port}\n",
    )


def dialling(near: Space, folder: pathlib.Path, *options: object) -> contextlib.AbstractContextManager:
    command = [WATM, "dial", "--unsealed", "--state", folder / "state.json", *options]
    return running(near, *command, listens=HERE)


def fragments(space: Space) -> int:
    """Returns the number of IPv4 fragments that a namespace made or reassembled."""
    names, values = (line.split() for line in space.run("cat", "/proc/net/snmp").splitlines() if line.startswith("Ip:"))
    counts = dict(zip(names[1:], map(int, values[1:]), strict=True))
    return counts["FragCreates"] + counts["ReasmReqds"]


def test_a_tunnel_goes_through_another_without_fragments(nested) -> None:
    near, middle, folder = nested
    before = fragments(middle)
    options = ("--udp", "--through", f"udp:{WIREGUARD}={folder}/outer.conf", "--config", folder / "inner.conf", *ALLOWED)
    with dialling(near, folder, WIREGUARD, *options, "--forward", f"tcp:127.0.0.1:{HERE}={INNER}:{COUNTED}"):
        for many, size in (("1", "20000000"), ("50", "100000")):
            assert near.run(sys.executable, "-c", MANY, str(HERE), many, size) == f"[{size}]\n"
    assert fragments(middle) == before


def test_watm_tunnel_goes_through_another(nested) -> None:
    near, middle, folder = nested
    before = fragments(middle)
    command = [WATM, "tunnel", "--unsealed", "--state", folder / "state.json", "--module", WIREGUARD, folder / "inner.conf"]
    command += ["--through", f"udp:{WIREGUARD}={folder}/outer.conf", *ALLOWED[:2], "--forward", f"tcp:127.0.0.1:{HERE}={INNER}:{COUNTED}"]
    with running(near, *command, listens=HERE):
        assert near.run(sys.executable, "-c", MANY, str(HERE), "20", "200000") == "[200000]\n"
    assert fragments(middle) == before


def test_a_name_is_looked_up_in_the_tunnel_that_it_is_reached_through(nested) -> None:
    near, middle, folder = nested
    certificate(folder)
    tls = (WATM, "listen", "--unsealed", MODULES / "tls.wasm", "--state", folder / "server.json", f"{OUTER}:{TLS}")
    through = ("--through", f"udp:{WIREGUARD}={folder}/outer.conf", *ALLOWED[:2], "--config", folder / "cert.pem")
    there = ("--through-dns", OUTER)
    with (
        naming(middle, OUTER, "inner.test", OUTER),
        running(middle, *tls, "--config", folder / "tls.pem", "--forward", f"{OUTER}:{COUNTED}", listens=TLS),
    ):
        options = (*through, *there, f"inner.test:{TLS}", "--listen", f"127.0.0.1:{HERE}")
        with dialling(near, folder, MODULES / "tls.wasm", *options):
            assert near.run(sys.executable, "-c", MANY, str(HERE), "5", "200000") == "[200000]\n"
        command = (WATM, "dial", "--unsealed", "--state", folder / "state.json", MODULES / "tls.wasm", *through)
        # The name exists only inside, and the tunnel's module resolves no names.
        for resolver, name in (((), "inner.test"), (("--through-dns", "host"), "inner.test"), (there, "other.test")):
            said = refused(near, *command, *resolver, "--timeout", "10", f"{name}:{TLS}")
            assert f"{name}:{TLS}" in said, said


def test_an_endpoints_name_is_looked_up_in_the_tunnel_that_it_is_reached_through(nested) -> None:
    near, middle, folder = nested
    named = (folder / "inner.conf").read_text().replace(f"Endpoint = {OUTER}", "Endpoint = inner.test")
    (folder / "named.conf").write_text(named)
    options = ("--udp", "--through", f"udp:{WIREGUARD}={folder}/outer.conf", "--through-dns", OUTER)
    options += ("--config", folder / "named.conf", *ALLOWED[:2], "--allow", f"udp://inner.test:{INNER_PORT}")
    with (
        naming(middle, OUTER, "inner.test", OUTER),
        dialling(near, folder, WIREGUARD, *options, "--forward", f"tcp:127.0.0.1:{HERE}={INNER}:{COUNTED}"),
    ):
        assert near.run(sys.executable, "-c", MANY, str(HERE), "5", "200000") == "[200000]\n"


def test_what_a_module_may_reach_through_another_is_what_is_allowed(nested) -> None:
    """Checks WireGuard over TCP, which connects to its Endpoint by itself."""
    near, _, folder = nested
    (folder / "reach.conf").write_text(configs("10.9.0.1", OUTER, COUNTED, "")[1])
    command = (WATM, "dial", "--unsealed", "--state", folder / "state.json", WIREGUARD, "--timeout", "3")
    command += ("--through", f"udp:{WIREGUARD}={folder}/outer.conf", *ALLOWED[:2], "--config", folder / "reach.conf")
    for allowed in ((), ("--allow", f"{OUTER}:{COUNTED + 1}"), ("--allow", "127.0.0.1")):
        said = refused(near, *command, *allowed, "10.9.0.1:80")
        assert "access denied" in said or "not allowed" in said, said
    # The connection is allowed, and there is no answer.
    said = refused(near, *command, "--allow", f"{OUTER}:{COUNTED}", "10.9.0.1:80")
    assert "denied" not in said and "not allowed" not in said, said


def refused(space: Space, *command: object) -> str:
    """Runs a program that must fail with status 1, and returns its error."""
    done = subprocess.run(
        space.command(*map(str, command)), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 1, done
    return done.stderr


def test_a_stream_goes_through_a_tunnel(nested) -> None:
    near, middle, folder = nested
    certificate(folder)
    tls = (WATM, "listen", "--unsealed", MODULES / "tls.wasm", "--state", folder / "server.json", f"{OUTER}:{TLS}")
    options = ("--through", f"udp:{WIREGUARD}={folder}/outer.conf", *ALLOWED[:2], "--config", folder / "cert.pem")
    with (
        running(middle, *tls, "--config", folder / "tls.pem", "--forward", f"{OUTER}:{COUNTED}", listens=TLS),
        dialling(near, folder, MODULES / "tls.wasm", *options, f"{OUTER}:{TLS}", "--listen", f"127.0.0.1:{HERE}"),
    ):
        assert near.run(sys.executable, "-c", MANY, str(HERE), "20", "200000") == "[200000]\n"


def test_a_tunnel_goes_through_a_stream(nested) -> None:
    """Checks datagrams in TLS to the WATER module, with one tunnel for each connection."""
    near, _, folder = nested
    certificate(folder)
    server, client = configs("10.9.0.1", "127.0.0.1", TLS, "")
    (folder / "stream.conf").write_text(client)
    (folder / "server.conf").write_text(server)
    behind = 7002
    tunnel = (WATM, "listen", "--unsealed", MODULES / "wireguard.watm1.wasm", f"127.0.0.1:{behind}")
    tls = (WATM, "listen", "--unsealed", MODULES / "tls.wasm", f"127.0.0.1:{TLS}", "--config", folder / "tls.pem")
    state = ("--state", folder / "server.json")
    options = ("--through", f"{MODULES}/tls.wasm={folder}/cert.pem", "--config", folder / "stream.conf")
    with (
        counting(near, "127.0.0.1", COUNTED),
        running(
            near, *tunnel, *state, "--config", folder / "server.conf", "--forward", f"127.0.0.1:{COUNTED}", listens=behind
        ),
        running(near, *tls, *state, "--forward", f"127.0.0.1:{behind}", listens=TLS),
        dialling(
            near, folder, WIREGUARD, *options, "--allow", "127.0.0.1", "--forward", f"tcp:127.0.0.1:{HERE}=10.9.0.1:80"
        ),
    ):
        assert near.run(sys.executable, "-c", MANY, str(HERE), "1", "1000000") == "[1000000]\n"


def certificate(folder: pathlib.Path) -> None:
    """Writes a certificate for both addresses and a name: `cert.pem`, and `tls.pem` with the key."""
    if (folder / "tls.pem").exists():
        return
    names = f"subjectAltName=IP:{OUTER},IP:127.0.0.1,DNS:inner.test"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=test", "-addext", names, "-addext", "basicConstraints=critical,CA:FALSE"]
    run(*command, "-keyout", folder / "key.pem", "-out", folder / "cert.pem")
    (folder / "tls.pem").write_text((folder / "cert.pem").read_text() + (folder / "key.pem").read_text())
