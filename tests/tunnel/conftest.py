"""Programs that know proxies, through a tunnel to wireguard-go and boringtun-cli. What a test needs and does not find is a failure."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "wgclient")]
sys.path.append(str(ROOT / "tests" / "tls"))  # certificates
sys.path.append(str(ROOT / "tests" / "tunnel" / "bench"))  # clients, completion

from coroutines import pytest_configure, pytest_pyfunc_call  # noqa: E402, F401
