"""Connections and datagrams that come from their clients' addresses."""

import json
import re
import socket
import subprocess

import pytest

from watm_test_support.repository import WATM

from .headers import version_1, version_2
from .namespace import LIMIT, Namespace, namespace
from .serving import PORT, UPSTREAM, serving

CLIENTS = {
    "127.0.0.1": ("203.0.113.7", "198.51.100.1"),
    "::1": ("2001:db8::7", "2001:db8::1"),
}
families = pytest.mark.parametrize("address", CLIENTS)


@pytest.fixture(scope="module")
def inside():
    with namespace() as made:
        made.bring_answers_back()
        yield made


@pytest.fixture(scope="module")
def running(inside):
    with serving(inside, transparent="{ client-port = true }") as made:
        yield made


@families
@pytest.mark.parametrize("version", [version_1, version_2])
def test_a_connection_is_from_its_client_on_both_sides(inside, running, address, version):
    client, site = CLIENTS[address]
    with inside.bound(address, UPSTREAM, socket.SOCK_STREAM) as upstream, inside.connected(address, PORT) as near:
        near.sendall(version(client, site, 4444) + b"hello")
        far, peer = upstream.accept()
        with far:
            assert peer[:2] == (client, 4444)
            assert far.recv(5) == b"hello"
            far.sendall(b"answer")
            assert near.recv(6) == b"answer"
            # Each direction ends separately.
            near.shutdown(socket.SHUT_WR)
            assert far.recv(1) == b""
            far.sendall(b"more")
            far.shutdown(socket.SHUT_WR)
            assert near.recv(4) == b"more"
            assert near.recv(1) == b""


@families
def test_b4_datagrams_are_from_their_clients_behind_one_socket(inside, running, address):
    client, site = CLIENTS[address]
    with (
        inside.bound(address, UPSTREAM, socket.SOCK_DGRAM) as upstream,
        inside.connected(address, PORT, socket.SOCK_DGRAM) as near,
    ):
        for _ in range(2):
            for port in (5001, 5002):
                near.send(version_2(client, site, port, udp=True) + b"from %d" % port)
                datagram, peer = upstream.recvfrom(100)
                assert peer[:2] == (client, port)
                assert datagram == b"from %d" % port
                upstream.sendto(b"to %d" % port, peer)
                assert near.recv(100) == b"to %d" % port


def test_f2_the_upstream_is_of_the_clients_family(inside, running):
    """An IPv4 client may connect over IPv6. Its address is then `::ffff:...`."""
    with inside.bound("127.0.0.1", UPSTREAM, socket.SOCK_STREAM) as upstream:
        for header in (
            version_1("203.0.113.9", "198.51.100.1", 4445),
            version_2("::ffff:203.0.113.9", "::ffff:198.51.100.1", 4446),
        ):
            with inside.connected("::1", PORT) as near:
                near.sendall(header)
                far, peer = upstream.accept()
                far.close()
                assert peer[0] == "203.0.113.9"


def test_no_client_has_an_address_of_this_machine(inside, running):
    """The application may trust local addresses, so a header that claims one gets no connection."""
    own = {4: "198.51.100.77", 6: "2001:db8::77"}
    for address in own.values():
        command = inside.command("ip", "address", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))
        subprocess.run(command, check=True, timeout=LIMIT)
    with inside.bound("127.0.0.1", UPSTREAM, socket.SOCK_STREAM) as upstream, inside.bound("::1", UPSTREAM, socket.SOCK_STREAM) as other:
        for claimed, site in (
            ("127.0.0.1", "198.51.100.1"),
            ("169.254.1.1", "198.51.100.1"),
            (own[4], "198.51.100.1"),
            ("::1", "2001:db8::1"),
            (own[6], "2001:db8::1"),
        ):
            with inside.connected("127.0.0.1", PORT) as near:
                near.sendall(version_1(claimed, site, 4447) + b"hello")
                try:
                    assert near.recv(1) == b"", claimed
                except ConnectionResetError:
                    pass
        for listening in (upstream, other):
            listening.settimeout(0.2)
            with pytest.raises(TimeoutError):
                listening.accept()


def doctor(inside: Namespace, *arguments: str) -> tuple[int, dict]:
    command = inside.command(WATM, "doctor", "--json", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("arguments", [("127.0.0.1:8000",), ("[::1]:8000",), ("127.0.0.1:8000", "--mark", "77")])
def test_what_the_doctor_prints_puts_it_right(arguments):
    address = "::1" if arguments[0].startswith("[") else "127.0.0.1"
    with namespace() as inside:
        status, found = doctor(inside, *arguments)
        assert status == 1 and not found["ok"]
        failed = {check["name"] for check in found["checks"] if not check["ok"]}
        assert failed == {"rule", "route", "reachable directly", "reachable from a client's address"}
        with inside.bound(address, UPSTREAM, socket.SOCK_STREAM):
            # Later commands refer to results of earlier ones.
            for _ in range(2):
                status, found = doctor(inside, *arguments)
                for check in found["checks"]:
                    for command in check["run"]:
                        if not command.startswith("#"):
                            subprocess.run(inside.command("sh", "-c", command), check=True, timeout=LIMIT)
                if status == 0:
                    break
            status, found = doctor(inside, *arguments)
            assert status == 0 and found["ok"], found
            shown = subprocess.run(inside.command(WATM, "doctor", *arguments), capture_output=True, text=True, timeout=LIMIT)
            assert shown.returncode == 0
            assert re.search(r"^ok +reachable from a client's address, .*: it answers$", shown.stdout, re.MULTILINE)


def test_the_doctor_sees_what_a_process_may_not_do():
    with namespace() as inside:
        command = inside.command("capsh", "--drop=cap_net_admin,cap_net_raw", "--", "-c", f"{WATM} doctor 127.0.0.1:8000")
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 1
        assert "failed  capabilities: the process has neither CAP_NET_ADMIN nor CAP_NET_RAW" in done.stdout
        assert "run: setcap cap_net_admin+ep" in done.stdout


def test_the_doctor_sees_a_kernel_that_throws_answers_away():
    """The upstream is on another machine."""

    def look(inside: Namespace) -> dict:
        # Datagrams need no answer.
        _, found = doctor(inside, "10.9.0.2:8000", "--udp")
        return {check["name"]: check for check in found["checks"]}

    with namespace() as inside:
        for command in (
            "ip link add near type veth peer name far",
            "ip address add 10.9.0.1/24 dev near",
            "ip link set near up",
            "ip link set far up",
            "sysctl -w net.ipv4.conf.near.rp_filter=1",
        ):
            subprocess.run(inside.command(*command.split()), check=True, timeout=LIMIT, capture_output=True)
        found = look(inside)
        assert not found["upstream is local"]["ok"]
        assert found["rp_filter"]["found"] == "rp_filter of near is strict"
        [command] = found["rp_filter"]["run"]
        subprocess.run(inside.command(*command.split()), check=True, timeout=LIMIT, capture_output=True)
        assert look(inside)["rp_filter"]["found"] == "rp_filter of near is 2"


def test_the_doctor_sees_too_few_descriptors():
    with namespace() as inside:
        command = inside.command("sh", "-c", f"ulimit -n 300; exec {WATM} doctor 127.0.0.1:8000 --udp")
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 1
        assert "failed  descriptors: at most 300, enough for 150 connections" in done.stdout
        assert "run: ulimit -n 16384" in done.stdout
