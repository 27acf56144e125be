"""mitmweb in a real browser: our page, its QR code, and the Capture tab."""

import pytest
import zxingcpp
from browser import browser
from ports import free_port
from test_mitmdump import client, keys_in
from web import start_web

MODE = "watm:wireguard@127.0.0.1:0"


@pytest.mark.limit(90)
async def test_the_page_is_looked_at(tmp_path):
    async with start_web(tmp_path, "--mode", MODE) as (program, link), browser() as window:
        await window.open(link)
        shown = await window.run("return document.querySelector('pre').innerText")
        assert f"PrivateKey = {keys_in(tmp_path).client}" in shown
        # What a phone in front of the screen reads.
        (code,) = zxingcpp.read_barcodes(await window.screenshot())
        assert code.format == zxingcpp.BarcodeFormat.QRCode
        assert code.text.strip() == shown.strip()

        # It refreshes itself, and leaves alone what the user has opened and selected.
        await window.run("document.querySelector('details').open = true; document.body.dataset.mark = 'same page'")
        await window.run("getSelection().selectAllChildren(document.querySelector('pre'))")
        assert "never" in await window.run("return document.querySelector('table').innerText")
        async with client(tmp_path, await program.port()) as inside:
            assert (await inside.do("http", url="http://10.9.8.7/"))["status"] == 200
            await window.wait_until("document.querySelector('table').innerText.includes('s ago')")
        assert await window.run("return document.querySelector('details').open")
        assert await window.run("return document.body.dataset.mark") == "same page"
        assert f"PrivateKey = {keys_in(tmp_path).client}" in await window.run("return getSelection().toString()")

        # A server that comes appears without a reload, one that goes disappears.
        await program.ask(command=f"watm.load wireguard?keys={tmp_path}/second.json@127.0.0.1:{free_port()}")
        await window.wait_until("document.querySelectorAll('article').length == 2")
        await program.ask(command=f"watm.unload {MODE}")
        await window.wait_until("document.querySelectorAll('article').length == 1")

        # One heading a section, each section and each code has a name, and nothing overflows.
        assert await window.run("return [...document.querySelectorAll('section')].every(s => s.ariaLabelledByElements[0].tagName == 'H2')")
        assert "Client configuration" in await window.run("return document.querySelector('svg title').textContent")
        assert await window.run("return document.documentElement.scrollWidth <= innerWidth")
        assert await window.complaints() == []

        program.process.terminate()
        await window.wait_until("!document.getElementById('stale').hidden")


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
