"""The commands and programs of the README and the book, run as a reader would run them."""

import asyncio
import base64
import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pexpect
import pytest

import mitmproxy_watm
from mitmproxy_watm.modules import about_of
from watm_test_support import mitmproxy_programs, starters
from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES, WATM

from .pages import ROOT, blocks, commands, with_values

PROGRAM = ROOT / "target" / "release"
WGCLIENT = ROOT / "build" / "wgclient"
BIN = pathlib.Path(sys.executable).parent

# Seconds. `make run` builds everything that is missing.
BUILD, START, STOP = 1800, 60, 30

# Tests that build need this limit.
pytestmark = pytest.mark.limit(2 * BUILD)

# The profile of the other tests. In their own profile, `make run` and `make tunnel` would compile the whole host again.
BUILT = "PROFILE=release"
MESSAGES = ("--messages=20", "--size=1000")
LISTENING = r"WireGuard server listening at"


def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """Returns the environment of a new user: no configuration of mitmproxy, no browser."""
    return os.environ | {
        "HOME": str(tmp_path),
        # Folders in a home folder that a build needs.
        "CARGO_HOME": os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo")),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup")),
        "PYENV_ROOT": os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")),
        "PATH": os.pathsep.join([str(BIN), str(PROGRAM), os.environ["PATH"]]),
        "BROWSER": "true",
        "TERM": "xterm-256color",
    }


@contextlib.contextmanager
def terminal(command: str, tmp_path: pathlib.Path, **options) -> Iterator[pexpect.spawn]:
    """Runs a command in a terminal until the block ends, then stops it with Ctrl-C."""
    child = pexpect.spawn(
        "/bin/sh",
        ["-c", command],
        cwd=options.pop("cwd", ROOT),
        env=environment(tmp_path),
        dimensions=(120, 200),
        encoding="utf-8",
        timeout=START,
        # A shell that runs the tests in the background ignores SIGINT, and its children inherit
        # that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield child
    finally:
        # The signal goes to the whole process group, as from a terminal.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGINT)
        deadline = time.monotonic() + STOP
        while child.isalive() and time.monotonic() < deadline:
            with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
                child.read_nonblocking(65536, timeout=0.2)
        child.close(force=True)
        # A console that loses its terminal does not end.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def keys() -> tuple[str, str, str]:
    """Returns a server's private key, and a client's private and public key."""
    from mitmproxy_watm.wireguard import genkey, pubkey

    server, client = genkey(), genkey()
    return server, client, pubkey(client)


def client(port: int, server_key: str, client_key: str, action: str, *flags: str) -> None:
    """Runs one action of a real client, and fails if the answer is wrong."""
    from mitmproxy_watm.wireguard import pubkey

    subprocess.run(
        [
            WGCLIENT,
            action,
            f"--server=127.0.0.1:{port}",
            f"--private-key={client_key}",
            f"--peer-public-key={pubkey(server_key)}",
            "--address=10.0.0.2,fd00::2",
            *flags,
        ],
        check=True,
        timeout=START,
    )


def configuration(server_key: str, client_public_key: str) -> str:
    """Returns the page's configuration of a server, with keys."""
    return with_keys(blocks("ini,wireguard")[0], server_key, client_public_key)


def with_keys(text: str, private_key: str, public_key: str) -> str:
    for key in (private_key, public_key):
        text = text.replace("<base64>", key, 1)
    return "\n".join(line for line in text.splitlines() if not line.startswith("PresharedKey"))


@pytest.mark.parametrize("ui", ["web", "dump", "console"])
def test_make_run_shows_the_client_configuration_and_its_qr_code(ui, tmp_path):
    assert "make run" in commands()
    with terminal(f"make run UI={ui} PORT={free_port()} {BUILT}", tmp_path) as child:
        if ui == "console":
            # The event log shows the configuration, and the status bar the mode.
            child.expect("watm:wireguard", timeout=BUILD)
            return
        child.expect(r"\[Interface\]", timeout=BUILD)
        child.expect("PrivateKey = ")
        child.expect("AllowedIPs = 0.0.0.0/0, ::/0")
        child.expect("[█▀▄]{10}")
        child.expect(LISTENING)
        if ui == "web":
            child.expect("http://[^ ]*/watm")


def test_make_test_is_a_target():
    assert "make test" in commands()
    subprocess.run(["make", "-n", "test"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=60)


def test_the_wheel_installs(tmp_path):
    command = "pip install build/wheels/*.whl"
    assert command in commands()
    subprocess.run(command + " --dry-run", shell=True, cwd=ROOT, env=environment(tmp_path), check=True, timeout=START)


def test_a_bug_is_recorded_and_replayed(tmp_path):
    (record,) = (c for c in commands() if "record=" in c)
    [replay] = (c for c in commands() if c.startswith("watm replay"))
    [inspect] = (c for c in commands() if c.startswith("watm inspect watm"))
    port, life = free_port(), tmp_path / "life.watm"
    with terminal(record.replace("life.watm", f"{life}@{port}"), tmp_path) as child:
        child.expect(LISTENING + f".*{port}")
    assert life.stat().st_mode & 0o777 == 0o600
    result = subprocess.run(
        replay.replace("life.watm", str(life)),
        shell=True,
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=BUILD,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("identical\n")
    subprocess.run(inspect, shell=True, cwd=ROOT, env=environment(tmp_path), check=True, timeout=BUILD)


@pytest.mark.parametrize(
    "command", [c for c in commands() if c.startswith("mitm") and ("--mode watm" in c or "--set watm=" in c)]
)
def test_a_mitmproxy_of_ones_own_serves(command, tmp_path):
    port = free_port()
    command = command.replace("watm:wireguard", f"watm:wireguard@{port}").replace("@51820", f"@{port}")
    with terminal(command, tmp_path) as child:
        child.expect(LISTENING + f".*{port}")


def test_the_python_program_echoes(tmp_path):
    server_key, client_key, client_public_key = keys()
    port = free_port()
    [program] = (block for block in blocks("python") if "51820" in block)
    (tmp_path / "server.conf").write_text(configuration(server_key, client_public_key))
    (tmp_path / "program.py").write_text(program.replace("51820", str(port)))
    process = subprocess.Popen([sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        client(port, server_key, client_key, "echo", *MESSAGES)
        client(port, server_key, client_key, "udp-echo", *MESSAGES)
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=STOP)
    assert "('10.0.0.2', " in output


@pytest.mark.parametrize("command", [c for c in commands() if "--example" in c])
def test_the_rust_program_answers(command, tmp_path):
    server_key, client_key, client_public_key = keys()
    port = free_port()
    config = tmp_path / "server.conf"
    config.write_text(configuration(server_key, client_public_key))
    command = command.replace("server.conf", str(config)).replace("51820", str(port))
    with terminal(command, tmp_path) as child:
        child.expect(f"serving on 127.0.0.1:{port}", timeout=BUILD)
        client(port, server_key, client_key, "udp-echo", *MESSAGES)
        client(port, server_key, client_key, "http", "--url=http://10.1.2.3/")


class Greeter(http.server.BaseHTTPRequestHandler):
    """Runs a server in place of example.com."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the page of " + self.headers["Host"].encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def example_com() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Greeter)
    threading.Thread(target=server.serve_forever).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("module", ["plain.wasm", "plain.watm1.wasm"])
def test_modules_carry_a_page(module, example_com, tmp_path):
    ports = {name: str(free_port()) for name in ("4430", "4431", "4480")}

    def here(text: str) -> str:
        return with_values(text, {"example.com:80": example_com, **ports})

    [curl] = (c for c in commands() if c.startswith("curl --header"))
    listen, dial, relay = (
        here(next(c for c in commands() if c.startswith(f"watm {name} --unsealed watm/target/modules/{module} ")))
        for name in ("listen", "dial", "relay")
    )
    [mode] = (here(c) for c in commands() if "?to=" in c)
    [program] = (here(block) for block in blocks("python") if "open_connection" in block)

    def fetch(command: str) -> str:
        return subprocess.run(
            here(command), shell=True, cwd=ROOT, env=environment(tmp_path), check=True, timeout=START,
            capture_output=True, text=True,
        ).stdout  # fmt: skip

    with terminal(f"exec {dial}", tmp_path) as dialling:
        dialling.expect(f"listening on 127.0.0.1:{ports['4480']}")
        with terminal(f"exec {listen}", tmp_path) as listening, terminal(f"exec {relay}", tmp_path) as relaying:
            listening.expect(f"listening on 127.0.0.1:{ports['4430']}")
            relaying.expect(f"listening on 127.0.0.1:{ports['4431']}")
            assert fetch(curl).endswith("the page of example.com")
            (tmp_path / "program.py").write_text(program)
            assert "the page of example.com" in fetch(f"{sys.executable} {tmp_path}/program.py")
        with terminal(f"exec {mode}", tmp_path) as serving:
            serving.expect(rf"server listening at .*{ports['4430']}")
            assert fetch(curl).endswith(f"the page of {example_com}")
            serving.expect(f"GET.*{example_com}")


def test_a_program_of_wasi_forwards(example_com, tmp_path):
    port = str(free_port())

    def command(beginning: str) -> str:
        [found] = (c for c in commands() if c.startswith(beginning))
        return with_values(found, {"example.com:80": example_com, "4480": port, "4430": port})

    def run(text: str) -> str:
        return subprocess.run(
            text, shell=True, cwd=ROOT, env=environment(tmp_path), check=True, timeout=START,
            capture_output=True, text=True,
        ).stdout  # fmt: skip

    run(command("cargo build --release --target wasm32-wasip2"))
    assert "runs      yes" in run(command("watm inspect examples/forward"))
    for role in ("relay", "listen"):
        with terminal(f"exec {command(f'watm {role} --unsealed examples/forward')}", tmp_path) as serving:
            serving.expect(f"listening on 127.0.0.1:{port}")
            assert run(command("curl --header")).endswith("the page of example.com")


def test_an_addon_changes_the_network(tmp_path):
    [addon] = (block for block in blocks("python") if "watm.network" in block)
    (tmp_path / "addon.py").write_text(addon)

    async def use() -> None:
        mode = "watm:wireguard@127.0.0.1:0"
        options = ("-s", f"{tmp_path}/addon.py", "--mode", mode)
        async with mitmproxy_programs.start("mitmdump-watm", tmp_path, *options) as program:
            async with mitmproxy_programs.client(tmp_path, await program.port()) as inside:
                for path, known in (("/", False), ("/tunnel", True)):
                    assert (await inside.do("http", url=f"http://10.9.8.7{path}"))["status"] == 200
                    assert ("bad network: 3g loss=2%" in "".join(await program.ask(command="watm.status"))) == known

    asyncio.run(use())


def test_wireguard_carries_a_page_in_a_stream(example_com, tmp_path):
    from mitmproxy_watm.wireguard import pubkey

    server_key, client_key, client_public_key = keys()
    ports = {name: str(free_port()) for name in ("4432", "4433")}

    files = {name: f"{tmp_path}/{name}" for name in ("server.conf", "client.conf")}

    def here(text: str) -> str:
        return with_values(text, {"example.com:80": example_com, **ports, **files})

    (tmp_path / "server.conf").write_text(configuration(server_key, client_public_key))
    [dialling] = (block for block in blocks("ini,wireguard") if "Target" in block)
    (tmp_path / "client.conf").write_text(here(with_keys(dialling, client_key, pubkey(server_key))))
    listen, relay, dial = (
        here(next(c for c in commands() if c.startswith(f"watm {name} --unsealed watm/target/modules/{module}")))
        for name, module in (("listen", "wireguard.watm1"), ("relay", "wireguard.watm1"), ("dial", "wireguard.wasm"))
    )
    question = "GET / HTTP/1.0\r\nHost: example.com\r\n\r\n"
    with terminal(f"exec {listen}", tmp_path) as listening, terminal(f"exec {relay}", tmp_path) as relaying:
        listening.expect(f"listening on 127.0.0.1:{ports['4432']}", timeout=BUILD)
        relaying.expect(f"listening on 127.0.0.1:{ports['4433']}", timeout=BUILD)
        run = {"shell": True, "cwd": ROOT, "env": environment(tmp_path), "check": True, "timeout": START}
        curl = f"curl -s --header 'Host: example.com' http://127.0.0.1:{ports['4433']}/"
        page = subprocess.run(curl, **run, capture_output=True, text=True).stdout
        assert page.endswith("the page of example.com")
        fixed = relay.replace(f"127.0.0.1:{ports['4433']} 127.0.0.1:{ports['4432']} ", "").replace("watm relay", "watm dial")
        for command in (dial, f"{fixed} --fixed --allow 127.0.0.1:{ports['4432']}"):
            answer = subprocess.run(command, **run, input=question, capture_output=True, text=True).stdout
            assert "the page of example.com" in answer


def page_through_tunnel(config: str, url: str, tmp_path: pathlib.Path) -> str:
    """Returns the page that the commands for one machine fetch with this client configuration."""
    port = str(free_port())
    proxy, curl = (
        next(c for c in commands() if c.startswith(begin)).replace("8082", port)
        for begin in ("mitmdump-watm --mode regular", "curl --proxy http")
    )
    (tmp_path / "client.conf").write_text(config)
    curl = re.sub(r"(?<= )http://(?!127.0.0.1:%s)\S+" % port, url, curl)
    with terminal(f"exec {proxy}", tmp_path, cwd=tmp_path) as running:
        running.expect("The upstream wireguard runs")
        run = {"shell": True, "env": environment(tmp_path), "check": True, "timeout": START, "capture_output": True, "text": True}
        return subprocess.run(curl, **run).stdout


def test_one_machine_shows_a_flow(example_com, tmp_path):
    mode = next(c for c in commands() if c.startswith("mitmweb-watm --mode watm:wireguard"))
    mode = mode.replace("mitmweb", "mitmdump").replace("watm:wireguard", f"watm:wireguard@{free_port()}")
    with terminal(f"exec {mode}", tmp_path) as serving:
        serving.expect(r"(\[Interface\].*Endpoint = [0-9.:]+)")
        config = serving.match[1].replace("\r", "")
        serving.expect(LISTENING)
        assert page_through_tunnel(config, f"http://{example_com}/", tmp_path) == f"the page of {example_com}"
        serving.expect(f"GET.*{example_com}")


def test_wireguard_serves_an_application(example_com, tmp_path):
    from mitmproxy_watm.wireguard import pubkey

    server_key, client_key, client_public_key = keys()
    [listen] = (c for c in commands() if c.startswith("watm listen --unsealed watm/target/modules/wireguard.wasm udp"))
    port = free_port()
    (tmp_path / "server.conf").write_text(configuration(server_key, client_public_key))
    listen = listen.replace("51820", str(port)).replace("example.com:80", example_com)
    config = (
        f"[Interface]\nPrivateKey = {client_key}\nAddress = 10.0.0.2/32\n"
        f"[Peer]\nPublicKey = {pubkey(server_key)}\nAllowedIPs = 0.0.0.0/0\nEndpoint = 127.0.0.1:{port}\n"
    )
    with terminal(f"exec {listen.replace('server.conf', f'{tmp_path}/server.conf')}", tmp_path) as listening:
        listening.expect(f"listening on udp://127.0.0.1:{port}")
        assert page_through_tunnel(config, "http://10.1.2.3/", tmp_path) == "the page of 10.1.2.3"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("tunnel", "CONF is missing"),
        ("tunnel CONF=nothing.conf", "CONF=nothing.conf is no file"),
        ("run UI=nothing", "UI=nothing is no front end"),
    ],
)
def test_mistakes_are_found_before_anything_is_built(arguments, error):
    run = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": START}
    result = subprocess.run(["make", "-n", "--no-print-directory", *arguments.split()], **run)
    assert result.returncode and error in result.stderr
    assert not result.stdout


def test_a_balancers_client_is_seen(example_com, tmp_path):
    [mode] = (c for c in commands() if "watm:proxy-protocol" in c)
    port = str(free_port())
    (tmp_path / "proxy.conf").write_text('from = "127.0.0.1"')
    mode = mode.replace("proxy.conf", f"{tmp_path}/proxy.conf").replace("example.com:80", example_com)
    with terminal(f"exec {mode.replace('4440', port)}", tmp_path) as serving:
        serving.expect(rf"server listening at .*{port}")
        curl = ["curl", "-s", "--haproxy-protocol", "--header", "Host: example.com", f"http://127.0.0.1:{port}/"]
        page = subprocess.run(curl, check=True, timeout=START, capture_output=True, text=True).stdout
        assert page.endswith(f"the page of {example_com}")
        serving.expect(f"GET.*{example_com}")


def test_tls_is_ended_and_spoken(example_com, tmp_path):
    cat, mode, listen, dial = (c for c in commands() if "tls" in c and not any(word in c for word in ("shadowsocks", "through")))
    ports = {name: str(free_port()) for name in ("8443", "8444", "8081")}
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    new += ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    made = ["openssl", "req", "-x509", *new, "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    subprocess.run(cat, shell=True, cwd=tmp_path, check=True, timeout=60)

    hosts = {"example.com:443": f"localhost:{ports['8444']}", "127.0.0.1:8080": example_com, "example.com:80": example_com}
    files = {"/etc/ssl/certs/ca-certificates.crt": f"{tmp_path}/cert.pem", "tls.pem": f"{tmp_path}/tls.pem"}

    def here(text: str) -> str:
        return with_values(text, {**hosts, **files, **ports})

    def fetch(url: str) -> str:
        curl = ["curl", "-sS", "--cacert", f"{tmp_path}/cert.pem", "--header", "Host: example.com", url]
        return subprocess.run(curl, check=True, timeout=START, capture_output=True, text=True).stdout

    with terminal(f"exec {here(mode)}", tmp_path) as serving:
        serving.expect(rf"server listening at .*{ports['8443']}")
        assert "the page of" in fetch(f"https://localhost:{ports['8443']}/")
        serving.expect("GET")
    with terminal(f"exec {here(listen)}", tmp_path) as listening, terminal(f"exec {here(dial)}", tmp_path) as dialling:
        listening.expect(f"listening on 127.0.0.1:{ports['8444']}", timeout=BUILD)
        dialling.expect(f"listening on 127.0.0.1:{ports['8081']}", timeout=BUILD)
        assert fetch(f"https://localhost:{ports['8444']}/") == "the page of example.com"
        assert fetch(f"http://127.0.0.1:{ports['8081']}/") == "the page of example.com"


def test_a_shadowsocks_server_shows_what_its_clients_do(example_com, tmp_path):
    [mode] = (c for c in commands() if "watm:shadowsocks" in c)
    port = free_port()
    config, *_ = blocks("json,shadowsocks")
    [dial] = (c for c in commands() if c.startswith("watm dial shadowsocks.wasm"))
    config = json.loads(config.replace("<16 bytes in base64>", base64.b64encode(bytes(16)).decode()))
    (tmp_path / "ss.json").write_text(json.dumps(config))
    mode = mode.replace("ss.json", f"{tmp_path}/ss.json").replace("@8388", f"@127.0.0.1:{port}")
    client = json.dumps(config | {"server": "127.0.0.1", "server_port": port})
    host, _, page = example_com.rpartition(":")

    async def fetch() -> bytes:
        allow = [f"127.0.0.1:{port}"]
        stream = await mitmproxy_watm.open_connection("shadowsocks", host, int(page), config=client, allow=allow)
        stream.write(f"GET / HTTP/1.0\r\nHost: {example_com}\r\n\r\n".encode())
        async with asyncio.timeout(START):
            return await stream.read()

    with terminal(f"exec {mode}", tmp_path) as serving:
        serving.expect(rf"ss://2022-blake3-aes-128-gcm:.*server listening at .*{port}")
        assert asyncio.run(fetch()).decode().endswith(f"the page of {example_com}")
        serving.expect(f"GET.*{example_com}")
        (tmp_path / "ss.json").write_text(client)
        proxy = f"127.0.0.1:{free_port()}"
        dial = dial.replace("shadowsocks.wasm", f"--unsealed {MODULES}/shadowsocks.wasm").replace("127.0.0.1:1080", proxy)
        dial = dial.replace("ss.json", f"{tmp_path}/ss.json").replace("server:port", f"127.0.0.1:{port}")
        with terminal(f"exec {dial}", tmp_path) as dialling:
            dialling.expect(f"listening on .*{proxy}")
            curl = ["curl", "-sS", "--proxy", f"socks5h://{proxy}", f"http://{example_com}/"]
            page = subprocess.run(curl, check=True, timeout=START, capture_output=True, text=True).stdout
            assert page == f"the page of {example_com}"


def test_a_socks5_server_shows_what_its_users_do(example_com, tmp_path):
    [mode] = (c for c in commands() if "watm:socks5" in c)
    [dial] = (c for c in commands() if c.startswith("watm dial socks5.wasm"))
    client, users = blocks("json,socks5")
    server, proxy = (f"127.0.0.1:{free_port()}" for _ in range(2))
    password = json.loads(users)["users"][0]["password"]
    (tmp_path / "users.json").write_text(users)
    (tmp_path / "proxy.json").write_text(client.replace("127.0.0.1:1080", server).replace("<the password>", password))
    mode = mode.replace("users.json", f"{tmp_path}/users.json").replace("@1080", f"@{server}")
    dial = dial.replace("socks5.wasm", f"--unsealed {MODULES}/socks5.wasm").replace("proxy.json", f"{tmp_path}/proxy.json")
    dial = dial.replace("127.0.0.1:1080", server).replace("127.0.0.1:1090", proxy)
    with terminal(f"exec {mode}", tmp_path) as serving, terminal(f"exec {dial}", tmp_path) as dialling:
        serving.expect(f"SOCKS5 server listening at .*{server}")
        dialling.expect(f"listening on .*{proxy}")
        curl = ["curl", "-sS", "--proxy", f"socks5h://{proxy}", f"http://{example_com}/"]
        page = subprocess.run(curl, check=True, timeout=START, capture_output=True, text=True).stdout
        assert page == f"the page of {example_com}"
        serving.expect(f"GET.*{example_com}")


FILES = (
    "root.key", "release.key", "root.json", "root.watm", "wireguard.json", "wireguard.sealed.wasm", "wireguard.wasm",
    "own.json", "own.wasm", "own-1.1.wasm", "own-1.3.wasm", "service.wasm",
)  # fmt: skip


class Signer:
    """Makes a user's folder with keys and a root, by the commands of the page about seals."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        [root] = blocks("json,root")
        for placeholder, name in (("<root key>", "root.key"), ("<release key>", "release.key")):
            root = root.replace(placeholder, self._public_key(f"watm keygen {name}"))
        (folder / "root.json").write_text(root)
        self.run("watm root new", "complete +yes")

    def here(self, command: str) -> str:
        """Runs a command with files in the folder."""
        for name in FILES:
            command = re.sub(rf" {re.escape(name)}\b", f" {self.folder}/{name}", command)
        return command

    def run(self, begin: str, outcome: str) -> None:
        """Runs the page's command with this beginning."""
        command = next(c for c in commands() if c.startswith(begin))
        with terminal(self.here(command), self.folder) as child:
            if "--key" in command:
                child.expect("passphrase of .*: ")
                child.sendline("correct horse")
            child.expect(outcome)
            child.expect(pexpect.EOF)

    def _public_key(self, begin: str) -> str:
        command = next(c for c in commands() if c.startswith(begin))
        with terminal(self.here(command), self.folder) as child:
            for question in ("new passphrase: ", "once more: "):
                child.expect(question)
                child.sendline("correct horse")
            child.expect("public +([0-9a-f]{64})")
            return child.match[1]


@pytest.mark.parametrize("language", starters.LANGUAGES)
def test_a_starter_is_built_and_checked(language, tmp_path):
    assert f"watm new own --language {language}" in commands()
    module = starters.build(language, tmp_path)
    command = [WATM, "check", "--unsealed", module]
    done = subprocess.run(command, env=environment(tmp_path), timeout=2 * START, capture_output=True, text=True)
    assert "13 passed, 0 failed, 0 skipped" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("watm check")])
def test_modules_are_checked(command, tmp_path):
    from mitmproxy_watm.wireguard import pubkey

    server_key, client_key, client_public_key = keys()
    (tmp_path / "server.conf").write_text(configuration(server_key, client_public_key))
    (tmp_path / "client.conf").write_text(
        f"[Interface]\nPrivateKey = {client_key}\nAddress = 10.0.0.2/32\n"
        f"[Peer]\nPublicKey = {pubkey(server_key)}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {{server}}\n"
    )
    command = command.replace("watm/target/modules", str(MODULES))
    run = {"shell": True, "cwd": tmp_path, "env": environment(tmp_path), "timeout": 2 * START, "capture_output": True, "text": True}
    done = subprocess.run(command, **run)
    assert "13 passed, 0 failed, 0 skipped" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


def test_a_client_that_cannot_find_the_server_is_refused(tmp_path):
    (tmp_path / "client.json").write_text('{"server": "127.0.0.1:1080"}')
    command = [WATM, "check", "--unsealed", MODULES / "socks5.wasm", "--dial-config", "client.json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), timeout=START, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "client.json: must contain {server}" in done.stderr


def test_a_description_is_read(tmp_path):
    [description] = blocks("json,about")
    section = b"\x0awatm.about" + description.encode()
    size = bytes([len(section) & 0x7F | 0x80, len(section) >> 7])
    module = tmp_path / "module.wasm"
    module.write_bytes(b"\0asm\1\0\0\0\0" + size + section)
    about = about_of(str(module))
    assert (about.title, about.port, about.transports, about.destinations) == ("My transport", 4430, ("tcp",), False)
    assert about.formats == {"json": {"password": "text", "idle": "number"}}
    shown = subprocess.run([WATM, "inspect", module], capture_output=True, text=True, timeout=START).stdout
    assert "about     My transport: Carries streams over a text protocol." in shown
    assert "config    json: my-transport (password, idle)" in shown


def test_a_module_is_sealed_trusted_and_verified(tmp_path):
    signer = Signer(tmp_path)
    [manifest] = (block for block in blocks("json,manifest") if '"wireguard"' in block)
    (tmp_path / "wireguard.json").write_text(manifest)
    signer.run("watm seal watm/target/modules/wireguard.wasm", "sealed +wireguard 1.1")
    signer.run("watm trust root.watm", "root +[0-9a-f]{64}")
    signer.run("watm verify wireguard.sealed.wasm", "accepted +yes")
    signer.run("watm trust --approve wireguard", "wireguard")
    signer.run("watm update wireguard", "updated +wireguard 1.1")
    assert (tmp_path / "wireguard.wasm").read_bytes() == (tmp_path / "wireguard.sealed.wasm").read_bytes()
    assert (tmp_path / "root.key").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def echo() -> Iterator[str]:
    """Yields the address of a TCP echo server."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while data := self.request.recv(65536):
                self.request.sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_module_of_ones_own_is_sealed_and_swapped(echo, tmp_path):
    signer = Signer(tmp_path)
    signer.run("watm trust root.watm", "root +[0-9a-f]{64}")
    build, component, inspect, copy, listen = (
        signer.here(next(c for c in commands() if c.startswith(begin)))
        for begin in (
            "cargo build --release --target wasm32-unknown-unknown", "cargo run --locked", "watm inspect own", "cp own",
            "watm listen --unsealed service",
        )
    )  # fmt: skip
    run = {"shell": True, "cwd": ROOT, "env": environment(tmp_path), "check": True, "timeout": BUILD}
    for command in (build, component, inspect, copy):
        subprocess.run(command, **run)
    [manifest] = (block for block in blocks("json,manifest") if '"team-a/own"' in block)
    port = free_port()
    listen = listen.replace("4435", str(port)).replace("127.0.0.1:8000", echo)

    inspecting = {"env": environment(tmp_path), "capture_output": True, "text": True, "timeout": START}

    def exchange(connection: socket.socket, said: bytes) -> None:
        connection.sendall(said)
        assert connection.recv(100) == said

    def release(number: str) -> None:
        (tmp_path / "own.json").write_text(manifest.replace('"release": "1.1"', f'"release": "{number}"'))

    with terminal(f"exec {listen}", tmp_path) as listening:
        listening.expect(f"listening on 127.0.0.1:{port}")
        with socket.create_connection(("127.0.0.1", port), timeout=START) as before:
            exchange(before, b"before")
            release("1.1")
            signer.run("watm seal own.wasm", "sealed +team-a/own 1.1")
            signer.run("watm trust --approve own", "team-a/own")
            signer.run("watm update own-1.1", "updated +team-a/own 1.1")
            listening.expect("swapped in team-a/own 1.1")
            exchange(before, b"still open")
            # Both ways back: a higher number, and this host alone.
            release("1.3")
            signer.run("watm seal own-1.1", "sealed +team-a/own 1.3")
            signer.run("watm update own-1.3", "updated +team-a/own 1.3, from 1.1")
            listening.expect("swapped in team-a/own 1.3")
            shown = subprocess.run([WATM, "inspect", tmp_path / "service.wasm"], **inspecting).stdout
            assert "last run: release 1.3" in shown
            signer.run("watm trust --forget", "root +[0-9a-f]{64}")
            signer.run("watm trust --approve own", "team-a/own")
            signer.run("watm update --allow-downgrade", "updated +team-a/own 1.1, from 1.3")
            listening.expect("swapped in team-a/own 1.1")
            exchange(before, b"open through all swaps")
        with socket.create_connection(("127.0.0.1", port), timeout=START) as after:
            exchange(after, b"after")


def test_the_program_is_built_with_its_modules(tmp_path):
    make, export = (next(c for c in commands() if c.startswith(begin)) for begin in ("make modules program", "export PATH="))
    subprocess.run(make, shell=True, cwd=ROOT, env=environment(tmp_path), check=True, timeout=BUILD)
    # The shell has no settings of a developer's environment.
    command = f'{export} && command -v watm && watm inspect "$WATM_MODULES/plain.wasm"'
    run = {"shell": True, "cwd": ROOT, "check": True, "timeout": START, "capture_output": True, "text": True}
    output = subprocess.run(command, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, **run).stdout
    assert output.startswith(str(PROGRAM / "watm")) and "runs      yes" in output


def test_the_modules_are_made_and_the_documentation_too(tmp_path):
    assert "make modules" in commands()
    (command,) = (c for c in commands() if "cargo doc" in c)
    for each in ("make modules", command.replace("--open ", "")):
        subprocess.run(
            each,
            shell=True,
            cwd=ROOT,
            env=environment(tmp_path) | {"RUSTDOCFLAGS": "-D warnings"},
            check=True,
            timeout=BUILD,
        )


@pytest.fixture
def tunnel_file(tmp_path) -> Iterator[pathlib.Path]:
    """Yields a file of wg-quick whose server has a page at 10.7.0.1."""
    from mitmproxy_watm.wireguard import pubkey

    server_key, client_key, client_public_key = keys()
    answering = [WGCLIENT, "answer", "--server", "127.0.0.1:9", "--private-key", server_key, "--address", "10.7.0.1"]
    peer = subprocess.Popen(
        [*answering, "--peer-public-key", client_public_key], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        endpoint = json.loads(peer.stdout.readline())["listen_port"]
        file = tmp_path / "wg0.conf"
        file.write_text(
            f"[Interface]\nPrivateKey = {client_key}\nAddress = 10.7.0.2/32\n"
            f"[Peer]\nPublicKey = {pubkey(server_key)}\nAllowedIPs = 0.0.0.0/0\nEndpoint = 127.0.0.1:{endpoint}\n"
        )
        yield file
    finally:
        peer.stdin.close()
        peer.wait(STOP)


TUNNELS = [
    "make tunnel",
    "watm tunnel wg0.conf --socks5 127.0.0.1:1080 --http",
    "watm tunnel wg0.conf --socks5 127.0.0.1:1080 --status",
]
# The names of the pages, with their addresses inside the tunnel of `tunnel_file`.
INSIDE = {"10.0.0.9:22": "10.7.0.1:80", "10.0.0.53": "10.7.0.1", "10.0.0.1/": "10.7.0.1/", "10.0.0.2:": "10.7.0.2:"}


@pytest.mark.parametrize("begin", TUNNELS)
def test_tunnels_come_up(begin, tunnel_file, tmp_path):
    made = begin == "make tunnel"
    command, curl = (next(c for c in commands() if c.startswith(each)) for each in (begin, "curl --socks5-hostname"))
    ports = {f"127.0.0.1:{port}": f"127.0.0.1:{free_port()}" for port in (1080, 8080, 2222, 5353, 9586)}
    socks, http, forward, _, status = ports.values()

    program = {"watm tunnel": f"watm tunnel --unsealed --module {MODULES}/wireguard.wasm"}

    def here(text: str) -> str:
        return with_values(text, ports | INSIDE | program | {"wg0.conf": str(tunnel_file)})

    def fetch(command: str) -> str:
        run = {"shell": True, "env": environment(tmp_path), "check": True, "timeout": START}
        return subprocess.run(command, **run, capture_output=True, text=True).stdout

    command = f"{here(command)} SOCKS5={socks} HTTP={http} {BUILT}" if made else f"exec {here(command)}"
    with terminal(command, tmp_path) as tunnel:
        tunnel.expect(f"listening on .*{socks}", timeout=BUILD)
        assert fetch(here(curl)) == "inside"
        if "--status" in begin:
            assert "handshake" in fetch(f"watm status {status}")
            fetch(f"curl -sS --fail http://{status}/readyz")
            return
        tunnel.expect(f"listening on .*{http}")
        assert fetch(f"curl -sS --max-time 30 --proxy http://{http} http://10.7.0.1/") == "inside"
        if not made:
            assert fetch(f"curl -sS --max-time 30 http://{forward}/") == "inside"


def test_an_application_is_served(example_com, tmp_path):
    from_file, from_options = (
        next(c for c in commands() if c.startswith(begin)) for begin in ("watm serve watm.toml", "watm serve --unsealed")
    )
    port = free_port()
    command = from_options.replace("4434", str(port)).replace("127.0.0.1:8000", example_com)
    with terminal(f"exec {command}", tmp_path) as serving:
        serving.expect(f"listening on 127.0.0.1:{port}")
        curl = ["curl", "-sS", "--header", "Host: example.com", f"http://127.0.0.1:{port}/"]
        page = subprocess.run(curl, check=True, timeout=START, capture_output=True, text=True).stdout
        assert page == "the page of example.com"
    ports = [free_port() for _ in range(3)]
    [config, *_] = (block for block in blocks("toml,serve") if 'name = "web"' in block)
    config = config.replace("0.0.0.0:443", f"127.0.0.1:{ports[0]}").replace("[::]:443", f"[::1]:{ports[1]}")
    (tmp_path / "watm.toml").write_text(config.replace("127.0.0.1:9100", f"127.0.0.1:{ports[2]}"))
    shutil.copy(MODULES / "plain.wasm", tmp_path)
    with terminal(f"exec {from_file} --unsealed", tmp_path, cwd=tmp_path) as serving:
        for address in (f"127.0.0.1:{ports[0]}", rf"\[::1\]:{ports[1]}"):
            serving.expect(f"listening on {address}")
