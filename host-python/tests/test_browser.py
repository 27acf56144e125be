"""mitmweb in a real browser: the page, its QR code, and the Capture tab."""

import pytest
import zxingcpp

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.browser import browser
from watm_test_support.mitmproxy_programs import client, keys_in
from watm_test_support.mitmweb import start_web
from watm_test_support.ports import free_port

MODE = "watm:wireguard@127.0.0.1:0"


@pytest.mark.limit(90)
async def test_the_page_is_looked_at(tmp_path):
    async with start_web(tmp_path, "--mode", MODE) as (program, link), browser() as window:
        await window.open(link)
        shown = await window.run("return document.querySelector('pre').innerText")
        assert f"PrivateKey = {keys_in(tmp_path).client}" in shown
        # Read as a phone in front of the screen does.
        (code,) = zxingcpp.read_barcodes(await window.screenshot())
        assert code.format == zxingcpp.BarcodeFormat.QRCode
        assert code.text.strip() == shown.strip()

        # It refreshes itself, and keeps the elements that the user has opened and selected.
        await window.run("document.querySelector('details').open = true; document.body.dataset.mark = 'same page'")
        await window.run("getSelection().selectAllChildren(document.querySelector('pre'))")
        assert "never" in await window.run("return document.querySelector('table').innerText")
        async with client(tmp_path, await program.port()) as inside:
            assert (await inside.do("http", url="http://10.9.8.7/"))["status"] == 200
            await window.wait_until("document.querySelector('table').innerText.includes('s ago')")
        assert await window.run("return document.querySelector('details').open")
        assert await window.run("return document.body.dataset.mark") == "same page"
        assert f"PrivateKey = {keys_in(tmp_path).client}" in await window.run("return getSelection().toString()")

        # A server that starts appears without a reload, one that stops disappears.
        await program.ask(command=f"watm.load wireguard?keys={tmp_path}/second.json@127.0.0.1:{free_port()}")
        await window.wait_until("document.querySelectorAll('article').length == 2")
        await program.ask(command=f"watm.unload {MODE}")
        await window.wait_until("document.querySelectorAll('article').length == 1")

        # One heading for each section, a name for each section and each code, and nothing
        # overflows.
        assert await window.run("return [...document.querySelectorAll('section')].every(s => s.ariaLabelledByElements[0].tagName == 'H2')")
        assert "Client configuration" in await window.run("return document.querySelector('svg title').textContent")
        assert await window.run("return document.documentElement.scrollWidth <= innerWidth")
        assert await window.complaints() == []

        program.process.terminate()
        await window.wait_until("!document.getElementById('stale').hidden")


# Elements in tables that are wider than allowed, or that are cut off.
CLIPPED = """
const wrong = [];
for (const element of document.querySelectorAll("table, table *")) {
  const box = element.getBoundingClientRect();
  if (box.width === 0) continue;
  if (box.left < 0 || box.right > innerWidth || element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0)
    wrong.push(element.outerHTML.slice(0, 120));
  for (let above = element.parentElement; above !== null; above = above.parentElement) {
    const around = above.getBoundingClientRect();
    if (getComputedStyle(above).overflowX !== "visible" && box.right > around.right + 1)
      wrong.push("cut off by " + above.tagName + "." + above.className + ": " + element.outerHTML.slice(0, 120));
  }
}
return wrong;
"""
# A peer's row with the longest values, and a path as long as those of files.
LONGEST = """
const row = [...document.querySelectorAll("table")].find((table) => table.textContent.includes("Endpoint")).tBodies[0].rows[0];
const texts = [null, "[2001:db8:1234:5678:9abc:def0:1234:5678]:51820", "119 min ago", "1023.9 GiB", "1023.9 GiB", "1000 ms", "100.0 %"];
texts.forEach((text, index) => { if (text !== null) { row.cells[index].textContent = text; } });
row.cells[1].className = "long";
"""


@pytest.mark.limit(90)
async def test_tables_fit_screens_and_phones(tmp_path):
    folder = tmp_path / ("a-folder-with-a-long-name-" * 3)
    folder.mkdir()
    upstream = folder / "wg0.conf"
    upstream.write_text(
        f"[Interface]\nPrivateKey = {genkey()}\nAddress = 10.0.0.2/32\n[Peer]\nPublicKey = {pubkey(genkey())}\n"
        "AllowedIPs = 0.0.0.0/0\nEndpoint = 127.0.0.1:9\n"
    )
    options = ("--mode", MODE, "--set", f"watm_upstream=far=wireguard?config={upstream}")
    async with start_web(tmp_path, *options) as (program, link), browser() as window:
        await program.wait_for("The upstream far runs")
        await window.open(link)
        key = pubkey(keys_in(tmp_path).client)
        for width, height in ((1280, 800), (390, 844)):
            await window.resize(width, height)
            await window.run("document.querySelectorAll('details').forEach((details) => { details.open = true })")
            # At once, before the page refreshes itself.
            assert await window.run(LONGEST + CLIPPED) == [], width
            assert key in await window.run("return document.body.textContent")
            assert await window.run("return document.documentElement.scrollWidth <= innerWidth"), width
            # Each value has its name beside it or above it.
            for name in ("Peer", "Endpoint", "Last handshake", "Received", "Sent", "Round trip", "Lost"):
                header = f"[...document.querySelectorAll('th')].some((th) => th.innerText === '{name}' && th.offsetWidth > 0)"
                label = f"[...document.querySelectorAll('td')].some((td) => getComputedStyle(td, '::before').content === '\"{name}\"')"
                assert await window.run(f"return {header} || {label}"), (width, name)


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
