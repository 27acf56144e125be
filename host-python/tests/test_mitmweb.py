"""The page in mitmweb, and the effect of its Capture tab on `watm:` modes."""

import json
import re
from urllib.parse import quote

import pytest
from test_mitmdump import ADDON

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.mitmproxy_programs import client, keys_in
from watm_test_support.mitmweb import HAS_LOGIN, Visitor, log_in, start_web
from watm_test_support.ports import free_port

MODE = "watm:wireguard@127.0.0.1:0"


async def test_the_page_shows_servers_peers_and_client_configurations(tmp_path):
    packets = tmp_path / "inner.pcapng"
    mode = f"watm:wireguard?pcap={packets}@127.0.0.1:0"
    async with start_web(tmp_path, "--mode", mode) as (program, link):
        visitor = await log_in(link)
        answer = await visitor.get("/watm")
        assert answer.headers["Content-Type"].startswith("text/html")
        assert answer.headers["Cache-Control"] == "no-store"
        assert await program.ask(command="watm.page") == link
        keys, port = keys_in(tmp_path), await program.port()
        for part in (
            mode,
            "Running",
            "Scan this",
            f"Writes all packets, unencrypted, to {packets}: ",
            f"PrivateKey = {keys.client}",
            f"Endpoint = 127.0.0.1:{port}",
            "<svg ",
            "send UDP to any address",
            "read or write files",
            "use up to 4 GiB of memory and one core",
        ):
            assert part in answer.text
        assert pubkey(keys.client) not in answer.text
        async with client(tmp_path, port) as inside:
            assert (await inside.do("http", url="http://10.9.8.7/seen"))["status"] == 200
            fragment = (await visitor.get("/watm/servers")).text
            assert pubkey(keys.client) in fragment
            assert re.search(r">127\.0\.0\.1:\d+</td><td[^>]*>(just now|\d+ s ago)</td>", fragment)
            file = await visitor.get(f"/watm/client?spec={quote(mode)}&index=0")
            assert file.headers["Content-Disposition"] == 'attachment; filename="wg0.conf"'
            assert f"PrivateKey = {keys.client}" in file.text
            for wrong in (f"spec={quote(mode)}&index=1", f"spec={quote(mode)}&index=-1", "spec=nobody&index=0", ""):
                assert (await visitor.get(f"/watm/client?{wrong}")).status == 404
        for name, kind in (("page.css", "text/css"), ("link.css", "text/css"), ("page.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
            answer = await visitor.get(f"/watm/{name}")
            assert answer.status == 200 and answer.headers["Content-Type"].startswith(kind)
        assert (await visitor.get("/watm/page.html")).status in (403, 404)


async def test_the_page_is_behind_mitmwebs_login(tmp_path):
    async with start_web(tmp_path, "--mode", MODE) as (_, link):
        stranger = Visitor(link.partition("/watm")[0])
        for path in ("/watm", "/watm/servers", "/watm/page.js", f"/watm/client?spec={quote(MODE)}&index=0"):
            answer = await stranger.get(path)
            assert answer.status == (403 if HAS_LOGIN else 200)
            assert ("PrivateKey" in answer.text) == (not HAS_LOGIN and path != "/watm/page.js")
            # A foreign page whose name was made to point here.
            assert (await stranger.get(path, host="rebound.example")).status == 403
        assert ("token=" in link) == HAS_LOGIN
        # mitmweb's own start page links to it, its login does not.
        assert ('href="/watm"' in (await stranger.get("/")).text) == (not HAS_LOGIN)
        assert 'href="/watm"' in (await (await log_in(link)).get("/")).text


async def test_the_page_begins_ends_and_downloads_a_capture(tmp_path):
    async with start_web(tmp_path, "--mode", MODE) as (program, link):
        visitor, port = await log_in(link), await program.port()
        spec = {"spec": MODE}
        address = f"/watm/capture?spec={quote(MODE)}"
        assert "Start capture" in (await visitor.get("/watm")).text
        assert (await visitor.get(address)).status == 404
        assert json.loads((await visitor.post("/watm/capture", spec | {"action": "start"})).text) == {"capturing": True}
        again = await visitor.post("/watm/capture", spec | {"action": "start"})
        assert again.status == 409 and "stop it first" in again.text
        async with client(tmp_path, port) as inside:
            assert (await inside.do("http", url="http://10.9.8.7/seen"))["status"] == 200
        assert "Stop capture" in (await visitor.get("/watm/servers")).text
        assert json.loads((await visitor.post("/watm/capture", spec | {"action": "stop"})).text) == {"capturing": False}
        text = (await visitor.get("/watm/servers")).text
        assert "Start capture" in text and 'download="capture.pcapng"' in text and "Writes all packets" not in text
        file = await visitor.get(address)
        assert file.headers["Content-Disposition"] == 'attachment; filename="capture.pcapng"'
        assert "GET /seen" in file.text
        for wrong in (spec, spec | {"action": "pause"}, {"spec": "nobody", "action": "start"}):
            assert (await visitor.post("/watm/capture", wrong)).status in (400, 404)


async def test_the_page_changes_the_network(tmp_path):
    async with start_web(tmp_path, "--mode", MODE) as (program, link):
        visitor = await log_in(link)
        await program.port()
        assert "through: <b>Perfect</b>" in (await visitor.get("/watm")).text
        for words, shown in (("3g", "3G"), ("loss=1%", "loss=1%"), ("", "Perfect")):
            answer = await visitor.post("/watm/network", {"spec": MODE, "words": words})
            assert json.loads(answer.text) == {"network": words or "off"}
            assert f"through: <b>{shown}</b>" in (await visitor.get("/watm/servers")).text
        wrong = await visitor.post("/watm/network", {"spec": MODE, "words": "loss=2"})
        assert wrong.status == 409 and "'2' is not a share" in wrong.text
        for wrong in ({"spec": MODE}, {"spec": "nobody", "words": "3g"}):
            assert (await visitor.post("/watm/network", wrong)).status in (400, 404)


async def test_a_configuration_too_long_for_a_qr_code_is_shown_without_one(tmp_path):
    server, client = genkey(), genkey()
    many = ", ".join(f"10.{n // 250}.{n % 250}.1/32" for n in range(500))
    config = tmp_path / "wg0.conf"
    config.write_text(f"[Interface]\nPrivateKey = {server}\n[Peer]\nPublicKey = {pubkey(client)}\nAllowedIPs = {many}\n")
    mode = ("--mode", f"watm:wireguard?config={config}@127.0.0.1:0")
    async with start_web(tmp_path, *mode) as (program, link):
        await program.port()
        answer = await (await log_in(link)).get("/watm")
        assert answer.status == 200
        assert f"Address = {many}" in answer.text
        assert "too long for a QR code" in answer.text and 'class="qr"' not in answer.text


async def test_the_page_escapes_what_it_shows(tmp_path):
    async with start_web(tmp_path, "--mode", "regular@127.0.0.1:0") as (program, link):
        visitor = await log_in(link)
        assert "No transport module is loaded" in (await visitor.get("/watm")).text
        mode = f"watm:{tmp_path}/<script>alert(1)</script>.wasm@127.0.0.1:{free_port()}"
        await program.ask(options={"mode": [mode]})
        await program.wait_for("No such file")
        text = (await visitor.get("/watm")).text
        assert "Not running" in text
        assert "<script>alert" not in text and "&lt;script&gt;alert" in text


async def test_the_page_is_there_for_a_stock_mitmweb_with_the_addon(tmp_path):
    options = ("-s", str(ADDON), "--set", "watm=wireguard@127.0.0.1:0", "--mode", "regular@127.0.0.1:0")
    async with start_web(tmp_path, *options, program="mitmweb") as (program, link):
        await program.port()
        visitor = await log_in(link)
        assert "PrivateKey" in (await visitor.get("/watm")).text


async def test_modes_through_mitmwebs_own_interface(tmp_path):
    port = free_port()
    async with start_web(tmp_path, "--mode", "regular@127.0.0.1:0") as (program, link):
        visitor = await log_in(link)
        mode = f"watm:wireguard@127.0.0.1:{port}"
        assert (await visitor.put("/options", {"mode": ["regular@127.0.0.1:0", mode]})).status == 200
        await program.wait_for(rf"listening at 127.0.0.1:{port}")
        state = json.loads((await visitor.get("/state")).text)["servers"][mode]
        assert state["type"] == "watm" and state["is_running"] and state["listen_addrs"] == [["127.0.0.1", port]]
        assert "PrivateKey" in state["wireguard_conf"]
        answer = await visitor.put("/options", {"mode": ["watm:nonsense"]})
        assert answer.status == 400 and "nonsense" in answer.text


@pytest.mark.limit(60)
async def test_a_toggle_in_the_capture_tab_leaves_our_modes_running(tmp_path):
    port = free_port()
    ours, regular = f"watm:wireguard@127.0.0.1:{port}", "regular@127.0.0.1:0"
    socks = f"socks5@127.0.0.1:{free_port()}"
    async with start_web(tmp_path, "--mode", regular, "--mode", ours) as (program, link):
        visitor = await log_in(link)
        async with client(tmp_path, port) as inside, inside.tcp("10.9.8.7:80") as connection:
            await fetch(connection, "/open")
            # The tab names the modes it knows: it turns one on, and all off.
            for update in ([regular, socks], []):
                assert (await visitor.put("/options", {"mode": update})).status == 200
                assert await program.ask(modes=True) == [*update, ours]
            await program.wait_for("watm.unload")
            # The mode was not even restarted.
            await fetch(connection, "/still")


async def fetch(connection, path: str) -> None:
    """Gets a page over a connection that stays open."""
    await connection.write(f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(f"from inside {path}".encode()):
        part = await connection.read()
        assert part, answer
        answer += part


@pytest.mark.limit(60)
async def test_whoever_means_to_remove_our_modes_can(tmp_path):
    port = free_port()
    ours, regular = f"watm:wireguard@127.0.0.1:{port}", "regular@127.0.0.1:0"
    async with start_web(tmp_path, "--mode", regular, "--mode", ours) as (program, link):
        visitor = await log_in(link)

        async def back() -> None:
            await program.ask(options={"mode": [regular, ours]})
            assert await program.ask(modes=True) == [regular, ours]

        # The line is removed in the options editor.
        await visitor.put("/options", {"mode": [regular]})
        assert await program.ask(modes=True) == [regular]
        await back()
        # By command, from the console or mitmweb's command bar.
        await program.ask(command=f"set mode {regular}")
        assert await program.ask(modes=True) == [regular]
        await back()
        await program.ask(command=f"watm.unload {ours}")
        assert await program.ask(modes=True) == [regular]
        await back()
        # The `watm:` mode is edited, others are removed.
        await visitor.put("/options", {"mode": [ours]})
        assert await program.ask(modes=True) == [ours]
        # Other options pass unchanged.
        assert (await visitor.put("/options", {"anticache": True})).status == 200
        assert (await visitor.put("/options", {"mode": "text"})).status == 400
