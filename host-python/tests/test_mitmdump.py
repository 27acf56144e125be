"""A real client's traffic in mitmdump, by each way in."""

import asyncio
import json
import shutil
import socket
import stat
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.every_flow import check_every_kind_of_flow
from watm_test_support.mitmproxy_programs import BIN, client, keys_in, start
from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES
from watm_test_support.upper_case import upper
from watm_test_support.wgclient import WgClient, WgClientError
from watm_test_support.wireguard_server import Keys

MODULE = MODULES / "wireguard.wasm"
"""The module as built, without a seal."""
ADDON = resources.files("mitmproxy_watm") / "addon" / "watm.py"

MODE = "watm:wireguard@127.0.0.1:0"


@pytest.mark.limit(60)
async def test_the_console_script_takes_the_mode(tmp_path):
    async with upper() as echo:
        async with start("mitmdump-watm", tmp_path, "--mode", MODE, "--set", f"echo_port={echo}") as program:
            port = await program.port()
            assert f"Endpoint = 127.0.0.1:{port}" in program.text
            assert f"PrivateKey = {keys_in(tmp_path).client}" in program.text
            await check_every_kind_of_flow(program, tmp_path, port)
    assert program.process.returncode == 0
    assert "Traceback" not in program.text


@pytest.mark.limit(60)
async def test_a_stock_mitmdump_takes_the_addon_and_its_option(tmp_path):
    path = subprocess.run(
        [sys.executable, "-m", "mitmproxy_watm"], check=True, capture_output=True, text=True,
        timeout=60,
    ).stdout.strip()
    assert Path(path) == Path(str(ADDON))
    async with upper() as echo:
        options = ("-s", path, "--set", "watm=wireguard@127.0.0.1:0", "--set", f"echo_port={echo}", "-p", str(free_port()))
        async with start("mitmdump", tmp_path, *options) as program:
            await check_every_kind_of_flow(program, tmp_path, await program.port())
            # The regular proxy was not requested.
            assert await program.ask(modes=True) == ["watm:wireguard@127.0.0.1:0"]
    assert program.process.returncode == 0
    assert "Traceback" not in program.text


SLOW = f"""\
#!{sys.executable}
import asyncio
from mitmproxy import addons
from mitmproxy.http import Response

from mitmproxy_watm.cli import mitmdump

class Slow:
    started = False

    async def running(self):
        await asyncio.sleep(1)
        self.started = True

    def request(self, flow):
        flow.response = Response.make(200 if self.started else 500)

default_addons = addons.default_addons
addons.default_addons = lambda: [*default_addons(), Slow()]
mitmdump()
"""
"""A mitmdump with an addon whose start takes a second."""


@pytest.mark.limit(60)
async def test_a_request_during_the_start_waits_for_its_end(tmp_path):
    """mitmproxy listens before its addons run, and some of its own fail a request that comes then."""
    slow = tmp_path / "slow"
    slow.write_text(SLOW)
    slow.chmod(0o700)
    async with start(str(slow), tmp_path, "--mode", "regular@127.0.0.1:0") as program:
        port = int((await program.wait_for(r"proxy listening at 127.0.0.1:(\d+)"))[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()
    assert program.process.returncode == 0


async def test_the_option_keeps_modes_that_were_asked_for(tmp_path):
    options = ("-s", str(ADDON), "--mode", "regular@127.0.0.1:0", "--set", "watm=wireguard@127.0.0.1:0")
    async with start("mitmdump", tmp_path, *options) as program:
        await program.port()
        await program.wait_for("HTTP.S. proxy listening")
        assert await program.ask(modes=True) == ["regular@127.0.0.1:0", "watm:wireguard@127.0.0.1:0"]
        assert "proxy at" not in program.text  # neither was stopped


async def test_the_console_script_takes_the_option_too(tmp_path):
    async with start("mitmdump-watm", tmp_path, "--set", "watm=wireguard@127.0.0.1:0") as program:
        await program.port()
        assert await program.ask(modes=True) == ["watm:wireguard@127.0.0.1:0"]


async def test_the_configuration_file_can_name_the_mode(tmp_path):
    (tmp_path / "config.yaml").write_text(f'mode: ["{MODE}"]\n')
    async with start("mitmdump-watm", tmp_path) as program:
        await program.port()


@pytest.mark.limit(60)
async def test_modes_come_and_go_at_run_time(tmp_path):
    one, two = free_port(), free_port()
    async with start("mitmdump-watm", tmp_path, "--mode", "regular@127.0.0.1:0") as program:
        await program.wait_for("proxy listening")
        assert await program.ask(command=f"watm.load wireguard@127.0.0.1:{one}") is None
        await program.wait_for(rf"server listening at 127.0.0.1:{one}")
        modes = ["regular@127.0.0.1:0", f"watm:wireguard@127.0.0.1:{one}"]
        assert await program.ask(modes=True) == modes
        assert "loaded already" in await program.ask(command=f"watm.load watm:wireguard@127.0.0.1:{one}")
        assert "same address" in await program.ask(command=f"watm.load wireguard?mtu=1280@127.0.0.1:{one}")
        assert "nonsense" in await program.ask(command="watm.load nonsense")
        assert "absent.wasm: No such file" in await program.ask(command=f"watm.load {tmp_path}/absent.wasm@127.0.0.1:{two}")
        assert "absent: No such file" in await program.ask(command=f"watm.load wireguard?config={tmp_path}/absent@{two}")
        assert await program.ask(modes=True) == modes

        # A second one with the same keys, by mitmproxy's own command.
        modes.append(f"watm:wireguard@127.0.0.1:{two}")
        assert await program.ask(command=f"set mode {' '.join(modes)}") is None
        await program.wait_for(rf"server listening at 127.0.0.1:{two}")
        for port in (one, two):
            async with client(tmp_path, port) as inside:
                assert (await inside.do("http", url=f"http://10.9.8.7/{port}"))["status"] == 200

        status = json.loads(await program.ask(command="watm.status.json"))
        assert [(server["spec"], server["phase"]) for server in status] == [(mode, "running") for mode in modes[1:]]
        (peer,) = status[0]["peers"]
        assert peer["name"] == pubkey(keys_in(tmp_path).client)
        assert peer["last_handshake"] is not None
        assert status[0]["counters"]["host.datagrams_received"] > 0

        assert "name one with its port" in await program.ask(command="watm.unload wireguard")
        assert await program.ask(command=f"watm.unload watm:wireguard@127.0.0.1:{one}") is None
        await program.wait_for(rf"server at 127.0.0.1:{one} stopped")
        assert await program.ask(command=f"watm.unload wireguard@127.0.0.1:{two}") is None
        await program.wait_for(rf"server at 127.0.0.1:{two} stopped")
        assert await program.ask(modes=True) == modes[:1]
        assert "not loaded" in await program.ask(command="watm.unload regular@127.0.0.1:0")
        assert await program.ask(command="watm.status.json") == "[]"
        assert await program.ask(command=f"watm.load wireguard@127.0.0.1:{one}") is None
        await program.ask(options={"mode": ["regular@127.0.0.1:0"]})
        assert await program.ask(modes=True) == modes[:1]


@pytest.mark.limit(60)
async def test_side_by_side_with_mitmproxys_own(tmp_path):
    own, ours = free_port(), free_port()
    other_keys = tmp_path / "other.json"
    modes = (
        "--mode",
        f"wireguard@127.0.0.1:{own}",
        "--mode",
        f"watm:wireguard?keys={other_keys}@127.0.0.1:{ours}",
        "--mode",
        f"watm:{MODULE}@[::1]:{ours}",
    )
    async with start("mitmdump-watm", tmp_path, "--set", "watm_unsealed=true", *modes) as program:
        for port in (own, ours):
            await program.wait_for(rf"WireGuard server listening at 127.0.0.1:{port}")
        await program.wait_for(rf"WireGuard server listening at \[::1\]:{ours}")
        async with client(tmp_path, own) as inside:
            assert (await inside.do("http", url="http://10.9.8.7/own"))["status"] == 200
        content = json.loads(other_keys.read_text())
        options = Keys(content["server_key"], content["client_key"]).client_options(ours)
        async with WgClient.start(**options) as inside:
            assert (await inside.do("http", url="http://10.9.8.7/ours"))["status"] == 200
        # With the keys of mitmproxy's own mode.
        async with client(tmp_path, ours, "::1") as inside:
            assert (await inside.do("http", url="http://10.9.8.7/six"))["status"] == 200
        assert (await program.flow(url="http://10.9.8.7/own"))["peer"] is None
        flow = await program.flow(url="http://10.9.8.7/six")
        assert flow["mode"] == modes[-1] and flow["metadata"]["watm_endpoint"].startswith("[::1]:")


async def test_two_on_one_port_are_refused(tmp_path):
    port = free_port()
    twice = ("--mode", f"watm:wireguard@{port}", "--mode", f"watm:wireguard?mtu=1400@{port}")
    async with start("mitmdump-watm", tmp_path, *twice) as program:
        assert await program.ended() == 1
    assert "Cannot spawn multiple servers on the same address" in program.text
    with_own = ("--mode", f"watm:wireguard@{port}", "--mode", f"wireguard@{port}")
    async with start("mitmdump-watm", tmp_path, *with_own) as program:
        assert await program.ended() == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("mitmdump-watm", "--mode", "watm:wireguard@127.0.0.1:{port}"),
        ("mitmdump", "-s", str(ADDON), "--set", "watm=wireguard@127.0.0.1:{port}"),
    ],
)
async def test_a_port_in_use_ends_the_start(arguments, tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        program, *options = (argument.format(port=port) for argument in arguments)
        async with start(program, tmp_path, "-p", str(free_port()), *options, observed=False) as running:
            assert await running.ended() == 1
        assert f"failed to listen on 127.0.0.1:{port}" in running.text
        assert "address already in use" in running.text.lower()


@pytest.mark.parametrize(
    ("mode", "complaint"),
    [
        ("watm:wireguard?keys={tmp}@0", "Invalid configuration file"),
        ("watm:{tmp}/absent.wasm@0", "{tmp}/absent.wasm: No such file or directory\n"),
        ("watm:wireguard?config={tmp}/absent.conf@0", "{tmp}/absent.conf: No such file or directory\n"),
        ("watm:wireguard@192.0.2.77:0", "failed to listen on 192.0.2.77:0: Cannot assign requested address\n"),
        ("watm:{tmp}/text.wasm@0", "text.wasm"),
        (f"watm:{MODULE}@0", "for development, allow it with --set watm_unsealed=true"),
        ("watm:wireguard?mtu=17@0", "mtu"),
        ("watm:wireguard?mtu=@0", "mtu: empty; must be a number of bytes from 1280 to 65475"),
        ("watm:wireguard?mut=1280@0", "mut"),
        ("watm:wireguard?config={tmp}/wg0.conf@0", "Colour"),
        ("watm:nonsense", "nonsense"),
        ("watm:", "module"),
    ],
)
async def test_a_mistake_ends_the_start_with_its_reason(mode, complaint, tmp_path):
    (tmp_path / "text.wasm").write_text("text")
    (tmp_path / "wg0.conf").write_text("[Interface]\nColour = red\n")
    async with start("mitmdump-watm", tmp_path, "--mode", mode.format(tmp=tmp_path)) as program:
        assert await program.ended() == 1
    assert complaint.format(tmp=tmp_path) in program.text + "\n"
    assert "rrno" not in program.text and "os error" not in program.text


async def test_an_at_sign_in_a_path(tmp_path):
    folder = tmp_path / "me@home"
    folder.mkdir()
    shutil.copy(str(MODULE), folder / "wireguard.wasm")
    ways = [
        ("--mode", f"watm:{folder}/wireguard.wasm@127.0.0.1:{free_port()}"),
        ("--mode", f"watm:{folder}/wireguard.wasm", "-p", str(free_port())),
        ("--set", f"watm={folder}/wireguard.wasm?keys={folder}/keys.json", "-p", str(free_port())),
    ]
    for way in ways:
        async with start("mitmdump-watm", tmp_path, *way, "--set", "watm_unsealed=true") as program:
            await program.port()
            [status] = json.loads(await program.ask(command="watm.status.json"))
            assert status["seal"] is None and "not sealed" in status["warnings"][0]
    assert "not sealed" in program.text
    assert (folder / "keys.json").is_file()


@pytest.mark.limit(60)
async def test_a_wg_quick_file_as_configuration(tmp_path):
    server, one, two = genkey(), genkey(), genkey()
    config = tmp_path / "wg0.conf"
    config.write_text(
        f"[Interface]\nPrivateKey = {server}\nAddress = 10.7.0.1/24\n\n"
        f"[Peer]\nPublicKey = {pubkey(one)}\nAllowedIPs = 10.7.0.2/32\n\n"
        f"[Peer]\nPublicKey = {pubkey(two)}\nAllowedIPs = 10.7.0.3/32\n"
    )
    async with start("mitmdump-watm", tmp_path, "--mode", f"watm:wireguard?config={config}@127.0.0.1:0") as program:
        port = await program.port()
        for key, address in ((one, "10.7.0.2"), (two, "10.7.0.3")):
            async with WgClient.start(**Keys(server, key).client_options(port), address=address) as inside:
                assert (await inside.do("http", url=f"http://10.9.8.7/{address}"))["status"] == 200
            flow = await program.flow(url=f"http://10.9.8.7/{address}")
            assert (flow["peer"], flow["peername"][0]) == (pubkey(key), address)
        async with WgClient.start(**Keys(server, one).client_options(port), address="10.7.0.3") as inside:
            with pytest.raises(WgClientError):
                await inside.do("http", url="http://10.9.8.7/not-his-address", timeout=1)


async def test_the_key_file_is_private_and_used_again(tmp_path):
    async with start("mitmdump-watm", tmp_path, "--mode", MODE) as program:
        await program.port()
    keys = keys_in(tmp_path)
    assert stat.S_IMODE((tmp_path / "wireguard.conf").stat().st_mode) == 0o600
    async with start("mitmdump-watm", tmp_path, "--mode", MODE) as program:
        await program.port()
    assert keys_in(tmp_path) == keys


@pytest.mark.limit(60)
async def test_a_changed_script_is_loaded_again_without_a_stop(tmp_path):
    script = tmp_path / "watm_script.py"
    shutil.copy(str(ADDON), script)
    options = ("-s", str(script), "--set", "watm=wireguard@127.0.0.1:0", "--mode", "regular@127.0.0.1:0")
    async with start("mitmdump", tmp_path, *options) as program:
        port = await program.port()
        await asyncio.sleep(1.1)  # the watcher looks once a second
        script.write_text(script.read_text() + "# changed\n")
        while program.text.count("Loading script " + str(script)) < 2:
            await asyncio.sleep(0.05)
        async with client(tmp_path, port) as inside:
            assert (await inside.do("http", url="http://10.9.8.7/after"))["status"] == 200
        assert await program.ask(command="watm.unload wireguard@127.0.0.1:0") is None
        await program.wait_for("WireGuard server at .* stopped")
    assert "rror" not in program.text


RECORDS_AND_A_SIGNAL = """
import asyncio, logging, os, signal

def both():
    for number in range(5000):
        logging.info("%d", number)
    os.kill(os.getpid(), signal.SIG{name})

def running():
    asyncio.get_running_loop().call_later(0.1, both)
"""


@pytest.mark.parametrize("name", ["TERM", "INT"])
@pytest.mark.parametrize("program", ["mitmdump-watm", "mitmdump"])
async def test_a_signal_that_comes_among_many_records_is_obeyed(program, name, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(RECORDS_AND_A_SIGNAL.format(name=name))
    ours = ("-s", str(ADDON)) if program == "mitmdump" else ()
    async with start(program, tmp_path, "-p", "0", *ours, "-s", str(script), observed=False) as running:
        assert await asyncio.wait_for(running.ended(), 20) == 0


TASK_WITHOUT_END = """
import asyncio, os, signal

async def live():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

def running():
    global task
    task = asyncio.ensure_future(live())
    asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
"""


async def test_the_end_waits_no_longer_than_some_seconds_for_what_does_not_end(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TASK_WITHOUT_END)
    async with start("mitmdump-watm", tmp_path, "-p", "0", "-s", str(script), observed=False) as program:
        assert await asyncio.wait_for(program.ended(), 20) == 0
    assert "flows had not ended after 5 s" in program.text


async def test_saved_flows_can_be_read_by_a_stock_mitmproxy(tmp_path):
    saved = tmp_path / "flows"
    async with start("mitmdump-watm", tmp_path, "--mode", MODE, "-w", str(saved)) as program:
        async with client(tmp_path, await program.port()) as inside:
            assert (await inside.do("http", url="http://10.9.8.7/saved"))["status"] == 200
    async with start("mitmdump", tmp_path, "-n", "-r", str(saved), observed=False) as reader:
        assert await reader.ended() == 0
    assert "GET http://10.9.8.7/saved" in reader.text
    code = (
        "import sys\nfrom mitmproxy.io import FlowReader\n"
        "flow, = FlowReader(open(sys.argv[1], 'rb')).stream()\n"
        "print(flow.client_conn.proxy_mode.full_spec, flow.metadata['watm_peer'])\n"
        "assert not [name for name in sys.modules if 'watm' in name]\n"
    )
    result = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, timeout=60)
    assert result.stdout.split() == ["wireguard", pubkey(keys_in(tmp_path).client)], result.stderr
    # With the mode loaded too, when `peer` knows the peer.
    code = (
        "import sys\nfrom mitmproxy.io import FlowReader\nfrom mitmproxy_watm.mitmproxy import peer\n"
        "flow, = FlowReader(open(sys.argv[1], 'rb')).stream()\nprint(peer(flow).name)\n"
    )
    result = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == pubkey(keys_in(tmp_path).client), result.stderr


@pytest.mark.limit(60)
async def test_a_udp_flow_goes_on_after_mitmproxy_gave_it_up(tmp_path):
    impatient = tmp_path / "impatient.py"
    impatient.write_text("import mitmproxy.proxy.server\nmitmproxy.proxy.server.UDP_TIMEOUT = 1\n")
    async with upper() as echo:
        options = ("--mode", MODE, "--set", f"echo_port={echo}", "-s", str(impatient))
        async with start("mitmdump-watm", tmp_path, *options) as program:
            async with client(tmp_path, await program.port()) as inside, inside.udp("10.9.8.7:7") as datagrams:
                for text in (b"first", b"second"):
                    await datagrams.write(text)
                    assert await datagrams.read() == text.upper()
                    await program.wait_for("client disconnect")
                    await asyncio.sleep(1.5)


async def test_an_empty_datagram_does_not_end_the_flow(tmp_path):
    async with upper() as echo:
        async with start("mitmdump-watm", tmp_path, "--mode", MODE, "--set", f"echo_port={echo}") as program:
            async with client(tmp_path, await program.port()) as inside, inside.udp("10.9.8.7:7") as datagrams:
                await datagrams.write(b"before")
                assert await datagrams.read() == b"BEFORE"
                await datagrams.write(b"")
                await datagrams.write(b"after")
                assert await datagrams.read() == b"AFTER"
        assert program.text.count("client connect") == 1


def test_programs_say_what_they_need_and_show_what_they_have():
    for program in ("mitmdump-watm", "mitmweb-watm", "mitmproxy-watm"):
        assert (BIN / program).is_file()
    options = subprocess.run([BIN / "mitmdump-watm", "--options"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert "\nwatm:" in options
    commands = subprocess.run([BIN / "mitmdump-watm", "--commands"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert {"watm.load", "watm.rollback", "watm.status", "watm.unload"} <= {line.split()[0] for line in commands.splitlines() if line}
