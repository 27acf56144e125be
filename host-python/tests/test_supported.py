"""The versions of mitmproxy: an old one is named at start with the range, and a newer one runs with a warning."""

import subprocess
import sys
import tomllib

from mitmproxy_watm.supported import NEWEST, OLDEST, RANGE
from watm_test_support.repository import ROOT

START = """
import sys
from mitmproxy import version
version.VERSION = sys.argv.pop(1)
{how}
"""
PROGRAM = "from mitmproxy_watm import cli; cli.mitmdump()"
ADDON = "import mitmproxy_watm.mitmproxy"


def start(version: str, how: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", START.format(how=how), version, "--version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_an_old_mitmproxy_is_named_with_the_supported_range():
    # 9.0.1 lacks a module that this package imports, and 11.0.1 has all of them.
    for version in ("9.0.1", "11.0.1"):
        done = start(version, PROGRAM)
        assert done.returncode == 1
        assert done.stderr.splitlines() == [f"mitmdump-watm: {too_old(version)}"]


def test_the_addon_names_it_too():
    done = start("10.4.2", ADDON)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {too_old('10.4.2')}"


def too_old(version: str) -> str:
    return f"mitmproxy {version} is too old: mitmproxy-watm supports {RANGE}; install 'mitmproxy>={OLDEST},<={NEWEST}'"


def test_a_newer_mitmproxy_runs_with_a_warning():
    done = start("13.0.0.dev1", PROGRAM)
    assert done.returncode == 0, done.stderr
    warning = f"mitmproxy 13.0.0.dev1 is newer than the tested versions: if it fails, mitmproxy-watm supports {RANGE}"
    assert done.stderr.count(warning) == 1, done.stderr


def test_a_tested_mitmproxy_runs_without_one():
    done = start(OLDEST, PROGRAM)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_range_is_what_is_tested():
    setup = ROOT / "tests" / "setup"
    pinned = {file.name: file.read_text() for file in setup.glob("requirements-*.txt")}
    assert f"mitmproxy=={OLDEST}\n" in pinned["requirements-3.11.txt"]
    assert f"mitmproxy=={NEWEST}\n" in pinned["requirements-3.13.txt"]
    wheel = tomllib.loads((ROOT / "host-python" / "pyproject.toml").read_text())
    assert wheel["project"]["optional-dependencies"]["mitmproxy"] == [f"mitmproxy>={OLDEST}"]
