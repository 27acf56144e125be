"""mitmproxy's connections through modules, to other people's servers. What a test needs and does not find is a failure."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/support", "tests/wgclient", "tests/tls", "host-python/tests")]

from coroutines import pytest_configure, pytest_pyfunc_call  # noqa: E402, F401
