"""Tests of the wheels in dist/ for this machine, installed into an empty environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
SERIES = f"{sys.version_info[0]}.{sys.version_info[1]}"
# Elsewhere a workflow chooses the Python.
EACH = ["3.11", SERIES] if sys.platform == "linux" else [SERIES]
"""The oldest Python that a wheel supports, and this one."""
SCRIPTS = "Scripts" if os.name == "nt" else "bin"


@pytest.fixture(scope="module", params=EACH)
def scripts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the programs of an environment with both wheels and the requirements of mitmproxy's tests."""
    series, python = request.param, sys.executable
    if series != SERIES:
        python = run(ROOT / "tests" / "setup" / "find-python.sh", series).strip()
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([python, "-m", "venv", folder], check=True, timeout=120)
    install = [folder / SCRIPTS / "python", "-m", "pip", "install", "-q", "--find-links", DIST, "--only-binary", "mitmproxy-watm,watm"]
    pins = ROOT / "tests" / "setup"
    wanted = ["mitmproxy-watm[mitmproxy]", *(["watm"] if list(DIST.glob("watm-*.whl")) else [])]
    install += ["-c", pins / f"constraints-{series}.txt", "-r", pins / f"requirements-{series}.txt", *wanted]
    subprocess.run(install, check=True, timeout=900)
    return folder / SCRIPTS


def run(*command: object, limit: float = 120) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.limit(1200)
def test_a_real_clients_traffic_reaches_mitmproxy(scripts: Path):
    place = run(scripts / "python", "-c", "import mitmproxy_watm; print(mitmproxy_watm.__file__)")
    assert str(scripts.parent) in place
    chosen = "console_script_takes_the_mode or stock_mitmdump"
    said = run(scripts / "python", "-m", "pytest", "-q", "host-python/tests/test_mitmdump.py", "-k", chosen, limit=600)
    assert "2 passed" in said


@pytest.mark.skipif(not list(DIST.glob("watm-*.whl")), reason="no wheel of the command in dist/")
def test_the_command_finds_its_modules(scripts: Path):
    assert run(scripts / "watm", "--version").startswith("watm ")
    modules = scripts.parent / "share" / "watm" / "modules"
    assert "watm/wireguard" in run(scripts / "watm", "verify", modules / "wireguard.wasm", "--root", modules / "root.watm")
