"""Shadowsocks against other people's programs. What a test needs and does not find is a failure."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("shadowsocks", "support")]
# mitmproxy's programs as processes, and the runtimes of WATER.
sys.path += [str(ROOT / folder) for folder in ("host-python/tests", "tests/water", "tests/bench")]

from coroutines import pytest_configure, pytest_pyfunc_call  # noqa: E402, F401
