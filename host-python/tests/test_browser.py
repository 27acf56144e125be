"""mitmweb in a real browser: the page, from its QR code to a swap, and the Capture tab."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zxingcpp
from test_mitmweb import fetch
from test_swap import UNSEALED, put

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support import needs
from watm_test_support.browser import Browser, browser
from watm_test_support.mitmproxy_programs import client, keys_in
from watm_test_support.mitmweb import start_web
from watm_test_support.ports import free_port

MODE = "watm:wireguard@127.0.0.1:0"

PHONE, WIDE = (360, 800), (1280, 900)

TEXT = "document.getElementById('servers').innerText"


@pytest.mark.limit(90)
async def test_a_user_scans_the_code_and_sees_the_peer(tmp_path):
    async with start_web(tmp_path, "--mode", MODE) as (program, link), browser() as window:
        await window.open(link)
        assert "Scan this" in await window.run("return document.querySelector('main h3').innerText")
        assert await window.run("return document.querySelectorAll('.graph').length") == 0
        shown = await window.run("return document.querySelector('pre').textContent")
        assert f"PrivateKey = {keys_in(tmp_path).client}" in shown
        # Read as a phone in front of the screen does. zxing now and then finds a linear barcode within a QR code.
        screen = (await window.screenshot()).convert("L")
        (code,) = zxingcpp.read_barcodes(screen, formats=zxingcpp.BarcodeFormat.QRCode)
        assert code.text.strip() == shown.strip()

        # It refreshes itself, and keeps the elements that the user has opened, selected and focused.
        await window.run("document.body.dataset.mark = 'same page'")
        await window.run("document.querySelector('.swap details').open = true")
        await window.run("getSelection().selectAllChildren(document.querySelector('.swap summary'))")
        await window.run("document.querySelector('.swap input[type=text]').value = 'half a na'")
        await window.run("document.querySelector('.swap input[type=text]').focus()")
        async with client(tmp_path, await program.port()) as inside:
            assert (await inside.do("http", url="http://10.9.8.7/"))["status"] == 200
            await window.wait_until("document.querySelector('table')?.innerText.includes('s ago')")
            table = await window.run("return document.querySelector('table').innerText")
            assert "wg0" in table and "127.0.0.1:" in table and "B" in table
            assert await window.run("return document.querySelectorAll('.graph').length") == 2
            # The code makes room, and stays within reach.
            assert await window.run("return document.querySelector('.fold .qr svg').checkVisibility()") is False
            await window.click("//summary[.='Client configuration']")
            assert await window.run("return document.querySelector('.fold .qr svg').checkVisibility()") is True
        assert await window.run("return document.querySelector('.swap details').open")
        assert await window.run("return document.body.dataset.mark") == "same page"
        assert await window.run("return document.activeElement.tagName + document.activeElement.value") == "SUMMARYundefined"
        assert await window.run("return document.querySelector('.swap input[type=text]').value") == "half a na"

        # A server that starts appears without a reload, one that stops disappears.
        await program.ask(command=f"watm.load wireguard?keys={tmp_path}/second.json@127.0.0.1:{free_port()}")
        await window.wait_until("document.querySelectorAll('section').length == 2")
        await program.ask(command=f"watm.unload {MODE}")
        await window.wait_until("document.querySelectorAll('section').length == 1")
        assert await window.complaints() == []

        program.process.terminate()
        await window.wait_until("!document.getElementById('stale').hidden")
        assert "Start mitmweb again" in await window.run("return document.getElementById('stale').innerText")


@pytest.mark.limit(90)
async def test_a_user_copies_and_downloads_the_configuration(tmp_path):
    async with start_web(tmp_path, "--mode", MODE) as (_, link), browser() as window:
        await window.open(link)
        await window.allow("clipboard-read", "clipboard-write")
        await window.download_to(tmp_path)
        shown = await window.run("return document.querySelector('pre').textContent")
        await window.click("//button[normalize-space()='Copy']")
        await window.wait_until("document.querySelector('.client .said').innerText.startsWith('Copied')")
        assert (await window.run_async("return await navigator.clipboard.readText()")).strip() == shown.strip()
        # The message stays when the page refreshes itself.
        before = await window.run("return document.querySelector('.timeline').innerText")
        await window.wait_until(f"document.querySelector('.timeline').innerText !== {json.dumps(before)}")
        assert (await window.run("return document.querySelector('.client .said').innerText")).startswith("Copied")
        await window.click("//a[contains(., 'Download')]")
        file = tmp_path / "wg0.conf"
        while not (file.exists() and file.stat().st_size):
            await asyncio.sleep(0.05)
        assert file.read_text().strip() == shown.strip()


@pytest.mark.limit(90)
async def test_a_user_swaps_a_file_in_and_goes_back_under_traffic(tmp_path):
    other = put(tmp_path / "other-wireguard.wasm", 0)
    picture = tmp_path / "photo.wasm"
    picture.write_bytes(b"\x89PNG")
    async with start_web(tmp_path, *UNSEALED, "--mode", MODE) as (program, link), browser() as window:
        await window.open(link)
        async with client(tmp_path, await program.port()) as inside, inside.tcp("10.9.8.7:80") as connection:
            await fetch(connection, "/before")
            assert "Go back" not in await window.run(f"return {TEXT}")

            await window.choose("input[type=file]", other)
            await window.click("//button[.='Swap']")
            await window.wait_until("document.querySelector('.swap .said').innerText.includes('in service now')")
            await fetch(connection, "/swapped")
            await window.wait_until("document.querySelectorAll('.timeline li').length == 2")
            entries = await window.run("return [...document.querySelectorAll('.timeline li')].map((each) => each.innerText)")
            assert "other-wireguard.wasm" in entries[0] and "In service for" in entries[0]
            assert "Finishes 1 flow." in entries[1]
            assert "Not sealed; accepted because" in await window.run(f"return {TEXT}")

            # A bad file: the error names it, the reason and the remedy, and nothing changes.
            await window.choose("input[type=file]", picture)
            await window.click("//button[.='Swap']")
            await window.wait_until(f"{TEXT}.includes('The swap failed')")
            said = await window.run("return document.querySelector('[data-key=failed]').innerText")
            assert said == (
                "The swap failed: photo.wasm: not WebAssembly; a .wasm file is expected. other-wireguard.wasm stays in service."
            )
            assert await window.run("return document.querySelector('[data-key=failed]').ariaLive") == "assertive"
            await fetch(connection, "/unimpressed")

            await window.click("//button[contains(., 'Go back to wireguard')]")
            await window.wait_until(f"{TEXT}.includes('wireguard is in service')")
            await window.wait_until("document.querySelector('.swap .said').innerText.includes('in service now')")
            await fetch(connection, "/back")
            assert "The swap failed" not in await window.run(f"return {TEXT}")
            # One flow through all of them.
            assert "Finishes 1 flow." in await window.run("return document.querySelector('.timeline').innerText")
        assert await window.complaints() == []


@pytest.mark.limit(90)
async def test_the_page_serves_the_keyboard(tmp_path):
    async with start_web(tmp_path, "--mode", MODE) as (_, link), browser() as window:
        await window.open(link)
        await window.allow("clipboard-read", "clipboard-write")
        reached = []
        for _ in range(25):
            await window.press("TAB")
            reached.append(await window.run("return (document.activeElement.innerText || document.activeElement.type || '').trim()"))
            if reached[-1] == "Copy":
                await window.press("ENTER")
                await window.wait_until("document.querySelector('.client .said').innerText.startsWith('Copied')")
            ring = await window.run("return getComputedStyle(document.activeElement).outlineStyle")
            assert ring != "none" or await window.run("return document.activeElement === document.body"), reached
        for name in ("Copy", "Show the configuration", "file", "Swap", "Or name a module on mitmproxy’s machine"):
            assert name in reached, (name, reached)


AXE = Path(__file__).resolve().parents[2] / "build" / "axe" / "axe.min.js"
FAULTS = """
const { violations } = await axe.run(document, { resultTypes: ["violations"] });
return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).join(" ").slice(0, 400)}`);
"""
# Elements that are wider than allowed, or that are cut off.
CLIPPED = """
const wrong = [];
if (document.documentElement.scrollWidth > innerWidth) wrong.push(`the page is ${document.documentElement.scrollWidth} wide`);
for (const element of document.querySelectorAll("main *:not(svg *, .hidden, [hidden], option)")) {
  const box = element.getBoundingClientRect();
  if (box.width === 0 || !element.checkVisibility()) continue;
  if (box.left < 0 || box.right > innerWidth + 0.5) wrong.push(element.outerHTML.slice(0, 120));
  const card = element.closest(".card");
  if (card !== null && box.right > card.getBoundingClientRect().right + 0.5)
    wrong.push("leaves its card: " + element.outerHTML.slice(0, 120));
  if (element.matches("table, table *") && element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0)
    wrong.push("overflows: " + element.outerHTML.slice(0, 120));
}
return wrong;
"""
# A peer's row with the longest values.
LONGEST = """
const row = document.querySelector("table").tBodies[0].rows[0];
const texts = [null, "[2001:db8:1234:5678:9abc:def0:1234:5678]:51820", "23 h 59 min ago", "1023 GiB", "1023 GiB", "1000 ms", "100 %"];
texts.forEach((text, index) => { if (text !== null && row.cells[index]) { row.cells[index].textContent = text; } });
"""
# Words of programs, which people do not read.
INTERNAL = r"return document.body.innerText.match(/\b(True|False|None|null|undefined|permille|\d{7,}|[a-z]+_[a-z_]+)\b/)"


async def examine(window: Browser) -> None:
    """Fails for anything cut off, or that a screen reader or a keyboard cannot use, in each size and colour scheme."""
    for scheme in ("light", "dark"):
        await window.prefer(scheme)
        for size in (WIDE, PHONE):
            await window.resize(*size)
            await window.run("document.querySelectorAll('details').forEach((details) => { details.open = true })")
            assert await window.run(CLIPPED) == [], (scheme, size)
            assert await window.run_async(AXE.read_text() + FAULTS) == [], (scheme, size)
    await window.resize(*WIDE)


@contextlib.asynccontextmanager
async def everything(tmp_path: Path) -> AsyncIterator[tuple]:
    """Runs mitmweb with a server, and an upstream whose file has a long path. Opens the page."""
    folder = tmp_path / ("a-folder-with-a-long-name-" * 3)
    folder.mkdir()
    upstream = folder / "wg0.conf"
    upstream.write_text(
        f"[Interface]\nPrivateKey = {genkey()}\nAddress = 10.0.0.2/32\n[Peer]\nPublicKey = {pubkey(genkey())}\n"
        "AllowedIPs = 0.0.0.0/0\nEndpoint = 127.0.0.1:9\n"
    )
    options = ("--mode", MODE, "--set", f"watm_upstream=far=wireguard?config={upstream}")
    async with start_web(tmp_path, *UNSEALED, *options) as (program, link), browser() as window:
        await program.wait_for("The upstream far runs")
        await window.open(link)
        yield program, window


@pytest.mark.limit(120)
async def test_the_page_fits_screens_and_phones_and_screen_readers(tmp_path):
    if not AXE.exists():
        needs.program("npm")
    async with everything(tmp_path) as (program, window):
        # Nobody has connected.
        await examine(window)
        other = put(tmp_path / ("a-module-with-a-long-name-" * 3 + ".wasm"), 0)
        async with client(tmp_path, await program.port()) as inside, inside.tcp("10.9.8.7:80") as connection:
            await fetch(connection, "/seen")
            await window.choose("input[type=file]", other)
            await window.click("//button[.='Swap']")
            await window.wait_until("document.querySelector('.swap .said.good')")
            other.write_text("no module")
            await window.choose("input[type=file]", other)
            await window.click("//button[.='Swap']")
            await window.wait_until("document.querySelector('[data-key=failed]').innerText")
            # Everything that the page can show.
            await examine(window)
            assert await window.run(INTERNAL) is None
            for size in (WIDE, PHONE):
                await window.resize(*size)
                # At once, before the page refreshes itself.
                assert await window.run(LONGEST + CLIPPED) == [], size
                # Each value has its name beside it or above it.
                for name in ("Address", "Last handshake", "Received", "Sent"):
                    header = f"[...document.querySelectorAll('th')].some((th) => th.innerText === '{name}' && th.offsetWidth > 0)"
                    label = f"[...document.querySelectorAll('td')].some((td) => getComputedStyle(td, '::before').content === '\"{name}\"')"
                    assert await window.run(f"return {header} || {label}"), (size, name)
        # A module that does not run.
        await program.ask(options={"mode": [f"watm:{tmp_path}/absent.wasm@127.0.0.1:{free_port()}"]})
        await window.wait_until(f"{TEXT}.includes('Not running')")
        await examine(window)
        assert "watm.unload" in await window.run(f"return {TEXT}")


@pytest.mark.limit(90)
async def test_a_user_chooses_a_bad_network(tmp_path):
    pressed = "[...document.querySelectorAll('.network [aria-pressed=true]')].map((each) => each.innerText).join()"
    chosen = "document.querySelector('.network .about').innerText"
    async with start_web(tmp_path, "--mode", MODE) as (program, link), browser() as window:
        await program.port()
        await window.open(link)
        assert await window.run(f"return {pressed}") == "Perfect"
        await window.click("//button[.='Offline']")
        await window.wait_until(f"{pressed} === 'Offline'")
        # A word of one's own, sent with Enter. An error stays beside the field, and changes nothing.
        field = "//input[@placeholder='3g loss=2%']"
        await window.type(field, "loss=2\n")
        await window.wait_until("document.querySelector('.network .said').innerText.includes('is not a share')")
        assert await window.run(f"return {pressed}") == "Offline"
        await window.type(field, "%\n")
        await window.wait_until(f"{chosen}.includes('loss=2%')")
        assert await window.run(f"return {pressed}") == ""
        assert await window.run("return document.querySelector('.network .said').innerText") == ""
        [complaint] = await window.complaints()
        assert "/watm/network" in complaint and "409" in complaint


@pytest.mark.limit(90)
async def test_a_click_in_the_capture_tab_leaves_our_modes_running(tmp_path):
    modes = ("--mode", "regular@127.0.0.1:0", "--mode", MODE)
    async with start_web(tmp_path, *modes) as (program, link), browser() as window:
        await program.port()
        await window.open(link.replace("/watm", "/"))
        await window.click("//a[normalize-space()='Capture']")
        await window.click("//label[normalize-space()='Run HTTP/S Proxy']/preceding-sibling::input")
        await program.wait_for(r"HTTP\(S\) proxy at .* stopped")
        assert await program.ask(modes=True) == [MODE]
        assert "WireGuard server at" not in program.text  # not stopped, not even for a moment
        # The tab does not know `watm:` modes; a link beside it leads to the page that does.
        await window.click("//a[.='Transport modules']")
        await window.wait_until("document.querySelector('main h3')?.innerText.startsWith('Scan this')")
        # The page of mitmweb 12.3.1 links a style sheet that is not in mitmproxy's wheel.
        complaints = [each for each in await window.complaints() if "/src/css/vendor.less" not in each]
        assert complaints == []
        await window.click("//a[contains(., 'Flows in mitmweb')]")
        await window.wait_until("document.querySelector('.nav-tabs') && document.querySelector('.watm-link').checkVisibility()")
