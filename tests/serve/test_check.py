"""A module's error about its configuration, at the start and with `--check`."""

import subprocess

import pytest

from watm_test_support.repository import MODULES, WATM
from watm_test_support.watm_serve import HOST


@pytest.mark.parametrize("check", [["--check"], []], ids=["check", "start"])
@pytest.mark.parametrize(
    ("module", "config", "reason"),
    [
        ("tls.wasm", "", "certificates: missing"),
        ("tls.watm1.wasm", "", "certificates: missing"),
        ("shadowsocks.wasm", "", "ss://"),
        ("shadowsocks.wasm", '{"method": "aes-256-gcm"}', "password: missing"),
        ("shadowsocks.watm1.wasm", '{"method": "aes-256-gcm"}', "password: missing"),
    ],
)
def test_what_a_module_cannot_serve_without(module, config, reason, check, tmp_path):
    path = tmp_path / "config"
    path.write_text(config)
    command = [WATM, "serve", "--unsealed", MODULES / module, "--config", path, *check]
    command += ["--listen", f"tcp://{HOST}:0", "--upstream", f"{HOST}:9"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0, ended
    assert reason in ended.stderr
