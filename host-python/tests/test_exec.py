"""`mitmdump-watm exec`: real programs whose only network is a device, in mitmdump."""

import asyncio
import contextlib
import http.server
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from watm_test_support import needs
from watm_test_support.mitmproxy_programs import BIN, start
from watm_test_support.sniffer import pages

ADDON = """
import ipaddress, json, os
from mitmproxy import ctx, dns, http
from mitmproxy_watm.mitmproxy import process

class Addon:
    def load(self, loader):
        loader.add_option("test_http", int, 0, "")
        loader.add_option("test_echo", int, 0, "")
        loader.add_option("test_notes", str, "", "")
        loader.add_option("test_answers", bool, True, "")

    def note(self, **facts):
        with open(ctx.options.test_notes, "a") as notes:
            notes.write(json.dumps(facts) + "\\n")

    def server_connect(self, data):
        self.note(connect=list(data.server.address[:2]), transport=data.server.transport_protocol)
        port = ctx.options.test_http if data.server.address[1] in (80, 443) else ctx.options.test_echo
        data.server.address = ("127.0.0.1", port)
        if data.server.address and data.client.tls:
            data.server.tls = False

    def requestheaders(self, flow):
        found = process(flow)
        kept = flow.metadata.get("watm_process"), flow.metadata.get("watm_pid")
        assert kept == ((found.name, found.pid) if found else (None, None)), kept
        self.note(url=flow.request.pretty_url, peer=list(flow.client_conn.peername[:2]), process=found and found.name)

    def request(self, flow):
        flow.request.scheme = "http"
        if flow.request.path == "/own":
            flow.response = http.Response.make(200, b"own\\n")

    def dns_request(self, flow):
        question = flow.request.question
        found = process(flow)
        self.note(question=question.name, type=question.type, asked_by=found and found.name)
        if not ctx.options.test_answers:
            return
        kinds = {dns.types.A: "192.0.2.7", dns.types.AAAA: "2001:db8::7"}
        address = ipaddress.ip_address(kinds[question.type])
        record = dns.ResourceRecord(question.name, question.type, dns.classes.IN, 60, address.packed)
        flow.response = flow.request.succeed([record])

addons = [Addon()]
"""


class _Page(http.server.BaseHTTPRequestHandler):
    """Answers each request with a page."""

    def do_GET(self) -> None:  # noqa: N802
        """Send the page."""
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"page\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write nothing."""


class _Echo(socketserver.BaseRequestHandler):
    """Sends a datagram back in upper case."""

    def handle(self) -> None:
        """Send it."""
        data, socket = self.request
        socket.sendto(data.upper(), self.client_address)


@contextlib.contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[int]:
    """Runs a server in a thread for the length of the block. Yields its port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Host:
    """Runs programs in mitmdump, with servers outside."""

    def __init__(self, folder: Path, http: int, echo: int) -> None:
        self.folder = folder
        self.notes_path = folder / "notes"
        addon = folder / "addon.py"
        addon.write_text(ADDON)
        self.settings = [
            *("-s", str(addon), "--set", f"test_http={http}", "--set", f"test_echo={echo}"),
            *("--set", f"test_notes={self.notes_path}", "--set", "connection_strategy=lazy"),
        ]
        self.options = ["--set", f"confdir={folder}", *self.settings]

    async def start(self, *words: str, before: tuple[str, ...] = (), options: tuple[str, ...] = ()) -> asyncio.subprocess.Process:
        """Starts mitmdump with a program."""
        return await asyncio.create_subprocess_exec(
            *before,
            str(BIN / "mitmdump-watm"),
            *self.options,
            *options,
            "exec",
            "--",
            *words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    async def run(self, *words: str, before: tuple[str, ...] = (), options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """Runs a program in mitmdump. Returns the exit status and both outputs."""
        process = await self.start(*words, before=before, options=options)
        output, errors = await process.communicate()
        assert process.returncode is not None
        assert "Traceback" not in errors.decode(), errors.decode()
        return process.returncode, output.decode(), errors.decode()

    @property
    def notes(self) -> list[dict[str, object]]:
        """The notes of the addon."""
        return [json.loads(line) for line in self.notes_path.read_text().splitlines()] if self.notes_path.exists() else []


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Skips without root where devices are for root alone."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        needs.root("devices of this machine")
    page = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    echo = socketserver.UDPServer(("127.0.0.1", 0), _Echo)
    with _serving(page) as http_port, _serving(echo) as echo_port:
        yield Host(tmp_path, http_port, echo_port)


@pytest.mark.limit(60)
@pytest.mark.parametrize("address", ["192.0.2.7", "[2001:db8::7]"])
async def test_requests_of_a_program_are_flows(host: Host, address: str) -> None:
    status, output, errors = await host.run("curl", "-sS", "--max-time", "20", f"http://{address}/path")
    assert (status, output) == (0, "page\n"), errors
    [url] = [note["url"] for note in host.notes if "url" in note]
    assert str(url).replace("[", "").replace("]", "") == f"http://{address.strip('[]')}/path"
    # mitmdump's own output is apart from the program's.
    assert "GET http" in errors


@pytest.mark.limit(60)
async def test_tls_is_trusted_and_names_are_looked_up_through_the_device(host: Host) -> None:
    status, output, errors = await host.run("curl", "-sS", "--max-time", "20", "https://secure.test/")
    assert (status, output) == (0, "page\n"), errors
    assert "https://secure.test/" in [note.get("url") for note in host.notes]
    assert "secure.test" in [note.get("question") for note in host.notes]


@pytest.mark.limit(60)
async def test_flows_name_the_process_that_they_come_from(host: Host) -> None:
    python = (
        "import urllib.request\n"
        "for host in '192.0.2.7', '[2001:db8::7]', 'name.test':\n"
        "    urllib.request.urlopen(f'http://{host}/python', timeout=20).read()\n"
    )
    # Two children at a time, in a session of their own.
    script = "setsid curl -sS --max-time 20 http://name.test/curl & \"$0\" -c \"$1\"; wait"
    status, _, errors = await host.run("sh", "-c", script, sys.executable, python)
    assert status == 0, errors
    processes = {(str(note["url"]).rpartition("/")[2], str(note["process"])) for note in host.notes if "url" in note}
    own = Path(sys.executable).name[:15]
    assert processes == {("curl", "curl"), ("python", own)}, errors
    assert {note["asked_by"] for note in host.notes if "question" in note} == {"curl", own}


@pytest.mark.limit(60)
async def test_python_trusts_it_too_and_resolves_both_families(host: Host) -> None:
    script = (
        "import socket, urllib.request\n"
        "found = {info[4][0] for info in socket.getaddrinfo('name.test', 443)}\n"
        "assert found == {'192.0.2.7', '2001:db8::7'}, found\n"
        "print(urllib.request.urlopen('https://name.test/', timeout=20).read().decode(), end='')\n"
    )
    assert (await host.run(sys.executable, "-c", script))[:2] == (0, "page\n")


@pytest.mark.limit(60)
async def test_datagrams_and_pings_are_answered(host: Host) -> None:
    script = (
        "import socket\n"
        "for family, address in (socket.AF_INET, '192.0.2.7'), (socket.AF_INET6, '2001:db8::7'):\n"
        "    with socket.socket(family, socket.SOCK_DGRAM) as s:\n"
        "        s.settimeout(20)\n"
        "        s.sendto(b'hello', (address, 4000))\n"
        "        answer, sender = s.recvfrom(100)\n"
        "        assert (answer, sender[0]) == (b'HELLO', address), (answer, sender)\n"
    )
    status, _, errors = await host.run(sys.executable, "-c", script)
    assert status == 0, errors
    needs.program("ping")
    status, output, errors = await host.run("ping", "-n", "-c", "2", "-W", "5", "192.0.2.7")
    assert status == 0, output + errors


@pytest.mark.limit(60)
async def test_a_program_has_a_bad_network(host: Host) -> None:
    request = ("curl", "-sS", "--max-time", "20", "-o", "/dev/null", "-w", "%{time_connect} %{time_total}", "http://192.0.2.7/")
    status, output, errors = await host.run(*request, options=("--mode", "watm:tun?network=delay=150ms"))
    assert status == 0, errors
    connected, ended = map(float, output.split())
    # A round trip for the connection, and one for the request.
    assert connected >= 0.3 and ended >= 0.6, output
    status, _, errors = await host.run("true", options=("--mode", "watm:tun?network=4h"))
    assert status == 1
    assert "network: '4h' is not the name of a network; expected edge, 3g" in errors


@pytest.mark.limit(60)
async def test_wireshark_shows_https_of_a_program_in_the_clear(host: Host) -> None:
    packets = host.folder / "program.pcapng"
    request = ("curl", "-sS", "--max-time", "20", "--http1.1", "https://secure.test/")
    status, output, errors = await host.run(*request, options=("--mode", f"watm:tun?pcap={packets}"))
    assert (status, output) == (0, "page\n"), errors
    assert await pages(packets) == [["GET", ""], ["", "200"]]
    assert not packets.stat().st_mode & 0o077


@pytest.mark.limit(60)
async def test_a_dead_name_server_costs_its_questions_alone(host: Host) -> None:
    script = (
        "import socket, threading, urllib.request\n"
        "def ask():\n"
        "    try:\n"
        "        print('an answer', socket.getaddrinfo('name.test', 443))\n"
        "    except socket.gaierror:\n"
        "        print('no answer', flush=True)\n"
        "asking = threading.Thread(target=ask)\n"
        "asking.start()\n"
        "for _ in range(3):\n"
        "    print(urllib.request.urlopen('http://192.0.2.7/', timeout=20).read().decode(), end='', flush=True)\n"
        "asking.join()\n"
    )
    # Nobody listens there. mitmproxy waits for seconds, and others do not.
    options = ("--set", "dns_name_servers=127.0.0.9", "--set", "test_answers=false")
    # The program waits for longer.
    patient = ("env", "RES_OPTIONS=timeout:30 attempts:1")
    status, output, errors = await host.run(*patient, sys.executable, "-c", script, options=options)
    assert (status, output) == (0, "page\npage\npage\nno answer\n"), errors
    questions = [note["question"] for note in host.notes if "question" in note]
    assert set(questions) == {"name.test"}
    # Its flows are lines as always. There is no other one about it.
    assert len([line for line in errors.splitlines() if "name.test" in line]) <= len(questions)


@pytest.mark.limit(60)
async def test_the_exit_status_is_the_programs(host: Host) -> None:
    assert (await host.run("sh", "-c", "exit 7"))[0] == 7
    assert (await host.run("sh", "-c", "kill -KILL $$"))[0] == 128 + signal.SIGKILL
    status, _, errors = await host.run("/nowhere/at/all")
    assert status == 127
    assert "cannot run /nowhere/at/all: No such file or directory" in errors


@pytest.mark.limit(60)
async def test_signals_are_passed_on_and_the_program_decides(host: Host) -> None:
    process = await host.start("sh", "-c", "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.1; done")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    process.terminate()
    output, errors = await process.communicate()
    assert (process.returncode, output) == (3, b"caught\n"), errors.decode()


def _runs(name: str) -> bool:
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and name.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                return True
    return False


@pytest.mark.limit(60)
async def test_a_killed_mitmdump_leaves_nothing(host: Host) -> None:
    name = f"watm-left-{os.getpid()}"
    script = "setsid sh -c 'while :; do sleep 1; done' \"$0\" & echo ready; while :; do sleep 1; done"
    process = await host.start("sh", "-c", script, name)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    assert _runs(name)
    process.kill()
    await process.wait()
    async with asyncio.timeout(30):
        while _runs(name):
            await asyncio.sleep(0.05)
    # The write end of the pipe is closed with the last process.
    assert await process.stdout.read() == b""


@pytest.mark.limit(60)
async def test_a_missing_device_is_explained(host: Host) -> None:
    needs.root("mounts")
    before = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/net && exec "$@"', "sh")
    status, output, errors = await host.run("true", before=before)
    assert (status, output) == (1, "")
    assert "cannot open /dev/net/tun: No such file or directory" in errors
    assert "load the kernel's module (`modprobe tun`)" in errors


@pytest.mark.limit(60)
async def test_no_rights_of_root_are_needed(host: Host) -> None:
    before: tuple[str, ...] = ()
    if os.geteuid() == 0:
        # Another user, who may read the folders of root's Python, and has the device as on most systems.
        node = host.folder / "tun"
        os.mknod(node, 0o20666, os.stat("/dev/net/tun").st_rdev)
        node.chmod(0o666)
        for path in (host.folder, *host.folder.rglob("*")):
            os.chown(path, 65534, 65534)
        rights = "+dac_read_search,+dac_override"
        before = (
            *("unshare", "--mount", "sh", "-c", f'mount --bind {node} /dev/net/tun && exec "$@"', "sh"),
            *("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
            *("--inh-caps", rights, "--ambient-caps", rights),
        )
    words = ("sh", "-c", "id -u && curl -sS --max-time 20 http://192.0.2.7/")
    status, output, errors = await host.run(*words, before=before)
    user = os.geteuid() or 65534
    assert (status, output) == (0, f"{user}\npage\n"), errors
    assert [note["process"] for note in host.notes if "url" in note] == ["curl"]


@pytest.mark.limit(60)
async def test_user_namespaces_that_are_forbidden_are_explained(host: Host) -> None:
    needs.root("settings of the kernel")
    # In a user namespace of its own, the limit concerns this test alone.
    before = (
        *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
        "echo 0 > /proc/sys/user/max_user_namespaces && "
        'exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin "$@"',
        "sh",
    )
    status, _, errors = await host.run("true", before=before)
    assert status == 1
    assert "cannot make a user namespace" in errors
    assert "set user.max_user_namespaces higher" in errors


DEVICE = """
ip link set lo up
ip tuntap add watm0 mode tun
ip address add 198.18.0.2/32 dev watm0
ip link set watm0 up
ip route add 192.0.2.0/24 dev watm0
"$@" >&2 &
for try in $(seq 200); do
    curl -sS --max-time 5 http://192.0.2.7/own && break
    sleep 0.1
done
kill $!
wait $!
"""


@pytest.mark.limit(60)
async def test_a_device_of_ones_own(host: Host) -> None:
    needs.root("network namespaces")
    before = ("unshare", "--net", "sh", "-c", DEVICE, "sh")
    options = ("--mode", "watm:tun?device=watm0")
    process = await asyncio.create_subprocess_exec(
        *before, str(BIN / "mitmdump-watm"), *host.options, *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert (process.returncode, output) == (0, b"own\n"), errors.decode()
    assert "Traceback" not in errors.decode()
    assert [note["process"] for note in host.notes if "url" in note] == ["curl"]


@contextlib.asynccontextmanager
async def _namespace(*before: str) -> AsyncIterator[tuple[str, tuple[str, ...]]]:
    """A network namespace with its loopback and a default route, as a container's. Yields the number of a process in
    it, and the words that run a command there."""
    script = (
        "ip link set lo up && ip tuntap add eth0 mode tun && ip address add 172.17.0.2/16 dev eth0 && ip link set eth0 up "
        "&& ip route add default via 172.17.0.1 && echo ready && exec sleep 600"
    )
    process = await asyncio.create_subprocess_exec(*before, "sh", "-c", script, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield str(process.pid), ("nsenter", "--target", str(process.pid), "--net")
    finally:
        process.kill()
        await process.wait()


async def _said(*words: str) -> tuple[int | None, str]:
    """Runs a command. Returns its exit status and what it said."""
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def _has_device(inside: tuple[str, ...], process: asyncio.subprocess.Process) -> None:
    """Waits until a namespace has the device of mitmdump, which runs."""
    async with asyncio.timeout(30):
        while (await _said(*inside, "ip", "link", "show", "watm0"))[0] != 0:
            assert process.returncode is None
            await asyncio.sleep(0.1)


ROUND_TRIP = """
import socket, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(2)
    begun = time.monotonic()
    s.sendto(b"a question", ("192.0.2.7", 4000))
    try:
        assert s.recv(100) == b"A QUESTION"
        print(time.monotonic() - begun)
    except TimeoutError:
        print("inf")
"""


@pytest.mark.limit(60)
async def test_commands_change_the_network_of_a_namespace_and_begin_a_capture(host: Host) -> None:
    needs.root("network namespaces")
    async with _namespace("unshare", "--net") as (number, inside):
        mode = f"watm:tun?netns={number}&network=delay=150ms"
        async with start("mitmdump-watm", host.folder, *host.settings, "--mode", mode) as program:
            await _has_device(inside, program.process)

            async def round_trip() -> float:
                status, said = await _said(*inside, sys.executable, "-c", ROUND_TRIP)
                assert status == 0, said
                return float(said)

            async def change(words: str) -> str:
                return await program.ask(command=f"watm.network tun {words}") or ""

            assert 0.3 <= await round_trip() < 2
            assert await change("delay=400ms direction=to-peer") == ""
            assert 0.4 <= await round_trip() < 2
            assert "'2' is not a share" in await change("loss=2")
            assert await change("offline host=192.0.2.7:4000") == ""
            assert await round_trip() == float("inf")
            assert "bad network: offline host=192.0.2.7:4000" in "".join(await program.ask(command="watm.status"))
            assert await change("off") == ""
            packets = host.folder / "namespace.pcapng"
            assert await program.ask(command=f"watm.capture.start tun {packets}") is None
            assert await round_trip() < 0.3
            assert await program.ask(command="watm.capture.stop tun") is None
            captured = packets.read_bytes()
            assert await round_trip() < 0.3
            assert packets.read_bytes() == captured
            assert captured.count(b"a question") == captured.count(b"A QUESTION") == 1
            [status] = json.loads(await program.ask(command="watm.status.json"))
            assert status["counters"]["network.lost"] == 1


ROUND_TRIPS = """
import socket, sys, time
with socket.create_connection(("192.0.2.7", 80)) as s:
    for _ in sys.stdin:
        begun = time.monotonic()
        s.sendall(b"GET /own HTTP/1.1\\r\\nHost: 192.0.2.7\\r\\n\\r\\n")
        answer = b""
        while not answer.endswith(b"from inside /own"):
            answer += s.recv(1000)
        print(time.monotonic() - begun, flush=True)
"""


@pytest.mark.limit(60)
async def test_an_open_connection_meets_the_network_and_the_capture_of_the_next_module(host: Host) -> None:
    needs.root("network namespaces")
    async with _namespace("unshare", "--net") as (number, inside):
        async with start("mitmdump-watm", host.folder, *host.settings, "--mode", f"watm:tun?netns={number}") as program:
            await _has_device(inside, program.process)
            words = (*inside, sys.executable, "-c", ROUND_TRIPS)
            client = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert client.stdin is not None and client.stdout is not None

            async def round_trip() -> float:
                client.stdin.write(b"\n")
                return float(await client.stdout.readline())

            try:
                assert await round_trip() < 0.3
                assert await program.ask(command="watm.swap tun tun") is None
                assert await round_trip() < 0.3
                [status] = json.loads(await program.ask(command="watm.status.json"))
                assert [generation["flows"] for generation in status["generations"]] == [1, 0]
                packets = host.folder / "swapped.pcapng"
                assert await program.ask(command=f"watm.capture.start tun {packets}") is None
                assert await program.ask(command="watm.network tun delay=400ms direction=to-peer") is None
                assert await round_trip() >= 0.4
                assert await program.ask(command="watm.capture.stop tun") is None
                assert await pages(packets) == [["GET", ""], ["", "200"]]
            finally:
                client.kill()
                await client.wait()


@pytest.mark.limit(60)
@pytest.mark.parametrize("users", [False, True], ids=["of root", "with users of its own"])
async def test_the_programs_of_a_namespace(host: Host, users: bool) -> None:
    needs.root("network namespaces")
    before = ("unshare", "--net", *(["--user", "--map-root-user"] if users else []))
    async with _namespace(*before) as (number, inside):
        if users:
            # As for a container without root: its user namespace has the rights over its network.
            inside = (*inside, "--user", "--preserve-credentials")
        process = await asyncio.create_subprocess_exec(
            *(str(BIN / "mitmdump-watm"), *host.options, "--mode", f"watm:tun?netns={number}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            await _has_device(inside, process)
            # Ahead of the default route that is there, and not of its own network.
            assert "watm0" in (await _said(*inside, "ip", "route", "get", "192.0.2.7"))[1]
            assert "eth0" in (await _said(*inside, "ip", "route", "get", "172.17.0.9"))[1]
            for address in ("192.0.2.7", "[2001:db8::7]"):
                command = ("curl", "-sS", "--max-time", "20", f"http://{address}/path")
                assert await _said(*inside, *command) == (0, "page\n")
            assert [(note["url"], note["process"]) for note in host.notes if "url" in note] == [
                ("http://192.0.2.7/path", "curl"),
                ("http://2001:db8::7/path", "curl"),
            ]
            # Nothing stays behind.
            process.kill()
            await process.wait()
            async with asyncio.timeout(30):
                while (await _said(*inside, "ip", "link", "show", "watm0"))[0] == 0:
                    await asyncio.sleep(0.05)
            assert "eth0" in (await _said(*inside, "ip", "route", "get", "192.0.2.7"))[1]
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@pytest.mark.limit(60)
async def test_a_namespace_that_does_not_exist_is_named(host: Host) -> None:
    for mode, why in (
        ("watm:tun?netns=nowhere", "cannot enter the network namespace /run/netns/nowhere: No such file or directory; name one"),
        ("watm:tun?netns=/proc/self/ns/mnt", "cannot enter the network namespace /proc/self/ns/mnt: Invalid argument; it must be"),
        ("watm:tun?netns=1&device=x", "options device and netns: give one of them"),
    ):
        status, said = await _said(str(BIN / "mitmdump-watm"), *host.options, "--mode", mode)
        assert status == 1
        assert why in said


@pytest.mark.limit(60)
async def test_arguments_are_checked(host: Host) -> None:
    process = await asyncio.create_subprocess_exec(
        str(BIN / "mitmdump-watm"), "exec", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.decode() == "usage: mitmdump-watm [OPTIONS] exec -- PROGRAM [ARGUMENT ...]\n"
    status, _, errors = await host.run("true", options=("--mode", "watm:tun?mtu=5"))
    assert status == 1
    assert "option mtu: 5; must be 1280-65535" in errors
