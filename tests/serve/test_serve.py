"""`watm serve` between widely used programs."""

import json
import re
import subprocess

import pytest

from watm_test_support.haproxy import configured
from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES, WATM

from .programs import fetch, listens, wait_for

SIZE = 3_000_000


def believing(port: int, application: int, what: str) -> str:
    """Returns haproxy's sections for a port that reads and logs PROXY headers."""
    return f"""
frontend it
    bind 127.0.0.1:{port} accept-proxy
    log stdout format raw local0
    log-format "heard of {what}"
    default_backend application
backend application
    server one 127.0.0.1:{application}
"""


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("module", ["plain.wasm", "plain.watm1.wasm"])
def test_haproxy_believes_the_header(version, module, application, start, tmp_path):
    """Runs haproxy, which refuses a header with a wrong checksum and logs clients."""
    inner, outer = free_port(), free_port()
    sections = believing(inner, application, "%ci:%cp")
    start("haproxy", "haproxy", "-f", configured(tmp_path, sections, "http"))
    listener = ["--listen", f"127.0.0.1:{outer}", "--upstream", f"127.0.0.1:{inner}", "--proxy-header", version]
    start("watm", WATM, "serve", "--unsealed", MODULES / module, *listener, "--log-format", "json")
    log = tmp_path / "watm.log"
    wait_for(lambda: listens(inner) and listens(outer), log.read_text)
    assert fetch(f"http://127.0.0.1:{outer}/{SIZE}") == SIZE
    wait_for(lambda: '"bytes_out":3000' in log.read_text(), log.read_text)
    records = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    [record] = [record for record in records if record.get("bytes_out", 0) > SIZE]
    assert record["reason"] == "done"
    heard = re.findall(r"heard of (\S+)", (tmp_path / "haproxy.log").read_text())
    assert record["client"] in heard


def test_haproxy_reads_what_a_client_of_tls_asked_for(application, start, tmp_path):
    """Checks that the SNI is the header's PP2_TYPE_AUTHORITY, and that a checksum covers all."""
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=one.example", "-addext", "subjectAltName=DNS:one.example"]
    subprocess.run([*made, "-keyout", "key.pem", "-out", "chain.pem"], check=True, cwd=tmp_path, capture_output=True, timeout=60)
    pem = tmp_path / "tls.pem"
    pem.write_text((tmp_path / "chain.pem").read_text() + (tmp_path / "key.pem").read_text())
    inner, outer = free_port(), free_port()
    sections = believing(inner, application, "%ci:%cp and %[fc_pp_authority]")
    start("haproxy", "haproxy", "-f", configured(tmp_path, sections, "http"))
    listener = ["--listen", f"127.0.0.1:{outer}", "--upstream", f"127.0.0.1:{inner}", "--proxy-header", "v2"]
    start("watm", WATM, "serve", "--unsealed", MODULES / "tls.wasm", "--config", pem, *listener)
    log = tmp_path / "haproxy.log"
    wait_for(lambda: listens(inner) and listens(outer), (tmp_path / "watm.log").read_text)
    command = ["curl", "-sS", "--cacert", tmp_path / "chain.pem", "--resolve", f"one.example:{outer}:127.0.0.1"]
    command += ["-w", "%{local_port}", "-o", tmp_path / "got", f"https://one.example:{outer}/{SIZE}"]
    port = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert (tmp_path / "got").stat().st_size == SIZE
    wait_for(lambda: f"heard of 127.0.0.1:{port} and one.example\n" in log.read_text(), log.read_text)


def test_many_requests_on_all_workers(application, start, tmp_path):
    """Checks that wrk sees no error, and that no connection stays open."""
    outer, pages = free_port(), free_port()
    listener = ["--listen", f"127.0.0.1:{outer}", "--upstream", f"127.0.0.1:{application}"]
    start("watm", WATM, "serve", "--unsealed", MODULES / "plain.wasm", *listener, "--workers", "2", "--metrics", f"127.0.0.1:{pages}")
    wait_for(lambda: listens(outer), (tmp_path / "watm.log").read_text)
    command = ["wrk", "-t1", "-c20", "-d1s", f"http://127.0.0.1:{outer}/1000"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert "Socket errors" not in said and "Non-2xx" not in said, said
    page = subprocess.run(["curl", "-s", f"http://127.0.0.1:{pages}/status"], check=True, capture_output=True, timeout=60).stdout
    [status] = json.loads(page)["listeners"]
    assert status["worker_count"] == 2
    wait_for(
        lambda: b'watm_connections_open{listener="1"} 0'
        in subprocess.run(["curl", "-s", f"http://127.0.0.1:{pages}/metrics"], check=True, capture_output=True, timeout=60).stdout,
        lambda: "connections stay open",
    )
