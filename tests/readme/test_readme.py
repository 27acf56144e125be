"""Every command and every program that the README shows, run as its reader would run it."""

import asyncio
import base64
import contextlib
import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pexpect
import pytest
from ports import free_port

import mitmproxy_watm

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
WGCLIENT = ROOT / "build" / "wgclient"
BIN = pathlib.Path(sys.executable).parent

# Seconds. `make run` builds whatever is not there yet.
BUILD, START, STOP = 1800, 60, 30

# Whatever builds may take that long.
pytestmark = pytest.mark.limit(2 * BUILD)

MESSAGES = ("--messages=20", "--size=1000")
LISTENING = r"WireGuard server listening at"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]


def indented() -> list[str]:
    """The lines of blocks that are indented by four, where a line that ends with a backslash goes on."""
    text = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    return [line.strip() for block in found for line in re.sub(r"\\\n\s*", "", block).splitlines()]


def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """A new user's: no configuration of mitmproxy, no browser to open."""
    return os.environ | {
        "HOME": str(tmp_path),
        # What a home folder holds and a build needs.
        "CARGO_HOME": os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo")),
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup")),
        "PYENV_ROOT": os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
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
        # Whoever runs the tests in the background ignores it, and what they run inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield child
    finally:
        # To all that the shell has started, as a terminal does.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGINT)
        deadline = time.monotonic() + STOP
        while child.isalive() and time.monotonic() < deadline:
            with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
                child.read_nonblocking(65536, timeout=0.2)
        child.close(force=True)
        # A console that lost its terminal would go on for ever.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def keys() -> tuple[str, str, str]:
    """A private key of a server, a private key of a client, the client's public key."""
    from mitmproxy_watm.wireguard import genkey, pubkey

    server, client = genkey(), genkey()
    return server, client, pubkey(client)


def client(port: int, server_key: str, client_key: str, action: str, *flags: str) -> None:
    """A real client does one thing, and fails if the answer is wrong."""
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
    """The README's own for a server, with keys."""
    return with_keys(blocks("ini")[0], server_key, client_public_key)


def with_keys(text: str, private_key: str, public_key: str) -> str:
    for key in (private_key, public_key):
        text = text.replace("<base64>", key, 1)
    return "\n".join(line for line in text.splitlines() if not line.startswith("PresharedKey"))


@pytest.mark.parametrize("ui", ["web", "dump", "console"])
def test_make_run_shows_the_client_configuration_and_its_qr_code(ui, tmp_path):
    assert "make run" in commands()
    assert f"UI={ui}" in README or ui == "web"
    with terminal(f"make run UI={ui} PORT={free_port()}", tmp_path) as child:
        if ui == "console":
            # The event log has the configuration; the status bar the mode.
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
    replay, inspect = (c for c in commands() if "watm -- replay" in c or "watm -- inspect" in c)
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


@pytest.mark.parametrize("command", [c for c in commands() if "--mode watm" in c or "--set watm=" in c])
def test_a_mitmproxy_of_ones_own_serves(command, tmp_path):
    port = free_port()
    command = command.replace("watm:wireguard", f"watm:wireguard@{port}").replace("@51820", f"@{port}")
    with terminal(command, tmp_path) as child:
        child.expect(LISTENING + f".*{port}")


def test_the_python_program_echoes(tmp_path):
    server_key, client_key, client_public_key = keys()
    port = free_port()
    [program] = (block for block in blocks("python") if "51820" in block)
    (tmp_path / "wg0.conf").write_text(configuration(server_key, client_public_key))
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
    config = tmp_path / "wg0.conf"
    config.write_text(configuration(server_key, client_public_key))
    command = command.replace("wg0.conf", str(config)).replace("51820", str(port))
    with terminal(command, tmp_path) as child:
        child.expect(f"serving on 127.0.0.1:{port}", timeout=BUILD)
        client(port, server_key, client_key, "udp-echo", *MESSAGES)
        client(port, server_key, client_key, "http", "--url=http://10.1.2.3/")


class Greeter(http.server.BaseHTTPRequestHandler):
    """Stands in for example.com."""

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


def test_water_modules_carry_a_page(example_com, tmp_path):
    ports = {name: str(free_port()) for name in ("4430", "4431", "4480")}

    def here(text: str) -> str:
        text = text.replace("example.com:80", example_com)
        for name, port in ports.items():
            text = text.replace(name, port)
        return text

    [curl] = (c for c in commands() if c.startswith("curl"))
    listen, dial, relay = (
        here(next(c for c in commands() if f"watm -- {name}" in c)) for name in ("listen", "dial", "relay")
    )
    [mode] = (here(c) for c in commands() if "?to=" in c)
    [program] = (here(block) for block in blocks("python") if "open_connection" in block)

    def fetch(command: str) -> str:
        return subprocess.run(
            here(command), shell=True, cwd=ROOT, env=environment(tmp_path), check=True, timeout=START,
            capture_output=True, text=True,
        ).stdout  # fmt: skip

    with terminal(f"exec {dial}", tmp_path) as dialling:
        dialling.expect(f"listening on 127.0.0.1:{ports['4480']}", timeout=BUILD)
        with terminal(f"exec {listen}", tmp_path) as listening, terminal(f"exec {relay}", tmp_path) as relaying:
            listening.expect(f"listening on 127.0.0.1:{ports['4430']}", timeout=BUILD)
            relaying.expect(f"listening on 127.0.0.1:{ports['4431']}", timeout=BUILD)
            assert fetch(curl).endswith("the page of example.com")
            (tmp_path / "program.py").write_text(program)
            assert "the page of example.com" in fetch(f"{sys.executable} {tmp_path}/program.py")
        with terminal(f"exec {mode}", tmp_path) as serving:
            serving.expect(rf"server listening at .*{ports['4430']}")
            assert fetch(curl).endswith(f"the page of {example_com}")
            serving.expect(f"GET.*{example_com}")


def test_wireguard_carries_a_page_in_a_stream(example_com, tmp_path):
    from mitmproxy_watm.wireguard import pubkey

    server_key, client_key, client_public_key = keys()
    ports = {name: str(free_port()) for name in ("4432", "4433")}

    def here(text: str) -> str:
        text = text.replace("example.com:80", example_com)
        for name, port in ports.items():
            text = text.replace(name, port)
        return text.replace("server.conf", f"{tmp_path}/server.conf").replace("client.conf", f"{tmp_path}/client.conf")

    (tmp_path / "server.conf").write_text(configuration(server_key, client_public_key))
    dialling = blocks("ini")[1]
    (tmp_path / "client.conf").write_text(here(with_keys(dialling, client_key, pubkey(server_key))))
    listen, relay, dial = (here(c) for c in commands() if "modules/wireguard" in c and ".conf" in c and "watm -- " in c)
    question = "GET / HTTP/1.0\r\nHost: example.com\r\n\r\n"
    with terminal(f"exec {listen}", tmp_path) as listening, terminal(f"exec {relay}", tmp_path) as relaying:
        listening.expect(f"listening on 127.0.0.1:{ports['4432']}", timeout=BUILD)
        relaying.expect(f"listening on 127.0.0.1:{ports['4433']}", timeout=BUILD)
        run = {"shell": True, "cwd": ROOT, "env": environment(tmp_path), "check": True, "timeout": START}
        curl = f"curl -s --header 'Host: example.com' http://127.0.0.1:{ports['4433']}/"
        page = subprocess.run(curl, **run, capture_output=True, text=True).stdout
        assert page.endswith("the page of example.com")
        fixed = relay.replace(f"127.0.0.1:{ports['4433']} 127.0.0.1:{ports['4432']} ", "").replace("-- relay", "-- dial")
        for command in (dial, f"{fixed} --fixed --allow 127.0.0.1:{ports['4432']}"):
            answer = subprocess.run(command, **run, input=question, capture_output=True, text=True).stdout
            assert "the page of example.com" in answer


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
    cat, mode, listen, dial = (c for c in commands() if "tls" in c)
    ports = {name: str(free_port()) for name in ("8443", "8444", "8081")}
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    new += ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    made = ["openssl", "req", "-x509", *new, "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    subprocess.run(cat, shell=True, cwd=tmp_path, check=True, timeout=60)

    def here(text: str) -> str:
        text = text.replace("example.com:443", f"localhost:{ports['8444']}").replace("127.0.0.1:8080", example_com)
        text = text.replace("/etc/ssl/certs/ca-certificates.crt", f"{tmp_path}/cert.pem")
        text = text.replace("tls.pem", f"{tmp_path}/tls.pem").replace("example.com:80", example_com)
        for name, port in ports.items():
            text = text.replace(name, port)
        return text

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
    [config] = (block for block in blocks("json") if "2022-blake3" in block)
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


def test_a_module_is_sealed_trusted_and_verified(tmp_path):
    names = ("root.key", "release.key", "root.json", "root.watm", "wireguard.json", "wireguard.sealed.wasm", "wireguard.wasm")
    words = ("keygen root.key", "keygen release.key", "root new", "seal", "trust", "verify", "update")
    steps = [next(c for c in commands() if f"watm -- {word}" in c) for word in words]

    def public_key(command: str) -> str:
        with terminal(here(command), tmp_path) as child:
            for question in ("new passphrase: ", "once more: "):
                child.expect(question, timeout=BUILD)
                child.sendline("correct horse")
            child.expect("public +([0-9a-f]{64})")
            return child.match[1]

    def here(command: str) -> str:
        for name in names:
            command = re.sub(rf" {re.escape(name)}\b", f" {tmp_path}/{name}", command)
        return command

    root, manifest, *_ = blocks("json")
    for placeholder, command in (("<root key>", steps[0]), ("<release key>", steps[1])):
        root = root.replace(placeholder, public_key(command))
    (tmp_path / "root.json").write_text(root)
    (tmp_path / "wireguard.json").write_text(manifest)
    expected = ("complete +yes", "sealed +wireguard 1.1", "root +[0-9a-f]{64}", "accepted +yes", "updated +wireguard 1.1")
    for command, outcome in zip(steps[2:], expected, strict=True):
        with terminal(here(command), tmp_path) as child:
            if "--key" in command:
                child.expect("passphrase of .*: ", timeout=BUILD)
                child.sendline("correct horse")
            child.expect(outcome, timeout=BUILD)
            child.expect(pexpect.EOF)
    assert (tmp_path / "wireguard.wasm").read_bytes() == (tmp_path / "wireguard.sealed.wasm").read_bytes()
    assert (tmp_path / "root.key").stat().st_mode & 0o777 == 0o600


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


def test_make_tunnel_brings_a_tunnel_up(tmp_path):
    [command] = (c for c in indented() if c.startswith("make tunnel"))
    server_key, client_key, client_public_key = keys()
    from mitmproxy_watm.wireguard import pubkey

    answering = [WGCLIENT, "answer", "--server", "127.0.0.1:9", "--private-key", server_key, "--address", "10.7.0.1"]
    peer = subprocess.Popen(
        [*answering, "--peer-public-key", client_public_key], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        endpoint = json.loads(peer.stdout.readline())["listen_port"]
        (tmp_path / "wg0.conf").write_text(
            f"[Interface]\nPrivateKey = {client_key}\nAddress = 10.7.0.2/32\n"
            f"[Peer]\nPublicKey = {pubkey(server_key)}\nAllowedIPs = 0.0.0.0/0\nEndpoint = 127.0.0.1:{endpoint}\n"
        )
        proxies = {name: f"127.0.0.1:{free_port()}" for name in ("SOCKS5", "HTTP")}
        command = command.replace("wg0.conf", f"{tmp_path}/wg0.conf")
        with terminal(" ".join([command, *(f"{n}={at}" for n, at in proxies.items())]), tmp_path) as tunnel:
            for address in proxies.values():
                tunnel.expect(f"listening on .*{address}", timeout=BUILD)
            for url in (f"socks5h://{proxies['SOCKS5']}", f"http://{proxies['HTTP']}"):
                curl = ["curl", "-sS", "--max-time", "30", "--proxy", url, "http://10.7.0.1/"]
                page = subprocess.run(curl, check=True, timeout=START, capture_output=True, text=True).stdout
                assert page == "inside"
    finally:
        peer.stdin.close()
        peer.wait(STOP)


def test_the_configuration_of_serve_is_right(tmp_path):
    [config] = (block for block in blocks("toml") if "[[listener]]" in block)
    (tmp_path / "plain.wasm").write_bytes((ROOT / "watm/target/modules/plain.wasm").read_bytes())
    (tmp_path / "watm.toml").write_text(config)
    check = [ROOT / "target/release/watm", "serve", "--unsealed", "--check", "watm.toml"]
    run = {"cwd": tmp_path, "env": environment(tmp_path), "timeout": START, "capture_output": True, "text": True}
    done = subprocess.run(check, **run)
    assert done.returncode == 0, done.stderr
    (tmp_path / "watm.toml").write_text(config.replace("idle-timeout", "idle-time"))
    done = subprocess.run(check, **run)
    assert done.returncode == 2 and "idle-time" in done.stderr, done.stderr


# How commands that the README shows begin, and the test that runs them.
TESTED = {
    "make run": "test_make_run_shows_the_client_configuration_and_its_qr_code",
    "pip install build/wheels/*.whl": "test_the_wheel_installs",
    "mitmweb-watm --mode watm:wireguard": "test_a_mitmproxy_of_ones_own_serves",
    "mitmdump -s": "test_a_mitmproxy_of_ones_own_serves",
    "cargo run --release --bin watm -- listen --unsealed watm/target/modules/plain": "test_water_modules_carry_a_page",
    "cargo run --release --bin watm -- dial --unsealed watm/target/modules/plain": "test_water_modules_carry_a_page",
    "cargo run --release --bin watm -- relay --unsealed watm/target/modules/plain": "test_water_modules_carry_a_page",
    "curl --header": "test_water_modules_carry_a_page",
    "mitmdump-watm --set watm_unsealed=true": "test_water_modules_carry_a_page",
    "cargo run --release --bin watm -- keygen root.key": "test_a_module_is_sealed_trusted_and_verified",
    "cargo run --release --bin watm -- keygen release.key": "test_a_module_is_sealed_trusted_and_verified",
    "cargo run --release --bin watm -- root new": "test_a_module_is_sealed_trusted_and_verified",
    "cargo run --release --bin watm -- seal": "test_a_module_is_sealed_trusted_and_verified",
    "cargo run --release --bin watm -- trust": "test_a_module_is_sealed_trusted_and_verified",
    "cargo run --release --bin watm -- verify": "test_a_module_is_sealed_trusted_and_verified",
    "cargo run --release --bin watm -- update": "test_a_module_is_sealed_trusted_and_verified",
    "make modules": "test_the_modules_are_made_and_the_documentation_too",
    "cargo doc": "test_the_modules_are_made_and_the_documentation_too",
    "cargo run --release --example serve": "test_the_rust_program_answers",
    "cargo run --release --bin watm -- listen --unsealed watm/target/modules/wireguard": "test_wireguard_carries_a_page_in_a_stream",
    "cargo run --release --bin watm -- relay --unsealed watm/target/modules/wireguard": "test_wireguard_carries_a_page_in_a_stream",
    "cargo run --release --bin watm -- dial --unsealed watm/target/modules/wireguard": "test_wireguard_carries_a_page_in_a_stream",
    'mitmdump-watm --mode "watm:proxy-protocol': "test_a_balancers_client_is_seen",
    "cat cert.pem key.pem": "test_tls_is_ended_and_spoken",
    'mitmdump-watm --mode "watm:tls': "test_tls_is_ended_and_spoken",
    "cargo run --release --bin watm -- listen --unsealed watm/target/modules/tls": "test_tls_is_ended_and_spoken",
    "cargo run --release --bin watm -- dial --unsealed watm/target/modules/tls": "test_tls_is_ended_and_spoken",
    'mitmdump-watm --mode "watm:shadowsocks': "test_a_shadowsocks_server_shows_what_its_clients_do",
    'mitmdump-watm --mode "watm:wireguard?record': "test_a_bug_is_recorded_and_replayed",
    "cargo run --release --bin watm -- replay": "test_a_bug_is_recorded_and_replayed",
    "cargo run --release --bin watm -- inspect": "test_a_bug_is_recorded_and_replayed",
    "make tunnel CONF=wg0.conf": "test_make_tunnel_brings_a_tunnel_up",
}
# Those that no test runs as they are, and why.
NOT_RUN = {
    "make test": "it is what runs this; test_make_test_is_a_target looks at it",
    "cargo run --release --bin watm -- doctor": "it judges this machine's routes; tests/proxy runs it in namespaces",
    "--mode watm:MODULE": "the form of an option and no command",
    ": watm.load": "a command in mitmproxy; host-python/tests/test_mitmdump.py gives it",
    ": watm.status": "a command in mitmproxy; host-python/tests/test_mitmdump.py gives it",
    ": watm.unload": "a command in mitmproxy; host-python/tests/test_mitmdump.py gives it",
    ": watm.swap wireguard": "a command in mitmproxy; tests/interop/test_swap.py swaps",
    ": watm.swap ss": "a command in mitmproxy; tests/interop/test_swap.py swaps",
    ": watm.upstream": "commands in mitmproxy; host-python/tests/test_upstream.py gives them",
    'mitmdump-watm --set "watm_upstream': "needs a server of a VPN; tests/upstream has them",
    "watm dial --unsealed wireguard.wasm": "needs a tunnel in a tunnel; tests/tunnel/test_chains.py has one",
    "watm tunnel wg0.conf": "needs a server of a VPN; tests/tunnel has them",
    "ssh -o ProxyCommand": "needs an SSH server; tests/tunnel/test_tunnel.py has --stdio without it",
    "watm status": "tests/tunnel/test_status.py runs it",
    "tshark -r outer.pcap": "needs a capture; tests/upstream/test_capture.py has one",
}


@pytest.mark.parametrize("command", [*commands(), *indented()])
def test_a_command_is_run_or_it_is_said_why_not(command):
    """The longest beginning counts."""
    begins = [begin for begin in TESTED | NOT_RUN if command.startswith(begin)]
    assert begins, f"the README shows {command!r}, which no test runs"
    test = TESTED.get(max(begins, key=len))
    assert test is None or test in globals(), f"{test} is not here"


def test_the_tables_have_no_command_that_is_not_shown():
    assert not TESTED.keys() & NOT_RUN.keys()
    shown = [*commands(), *indented()]
    gone = [begin for begin in TESTED | NOT_RUN if not any(command.startswith(begin) for command in shown)]
    assert not gone
    for reason in NOT_RUN.values():
        for path in re.findall(r"(?:tests|host-python)/[\w/.-]*\w", reason):
            assert (ROOT / path).exists(), path


def test_every_target_of_make_that_is_mentioned_is_there():
    targets = set(re.findall(r"^([\w-]+)(?: [\w-]+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE))
    mentioned = set(re.findall(r"`make ([a-z][\w-]*)", README))
    assert mentioned and mentioned <= targets, mentioned - targets
