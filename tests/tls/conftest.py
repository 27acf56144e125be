"""Other people's TLS against ours. What a test needs and does not find is a failure."""

import pathlib
import sys

import pytest
from peers import ROOT

sys.path[:0] = [str(ROOT / "tests" / "support")]
sys.path.append(str(ROOT / "host-python" / "tests"))  # mitmproxy's programs as processes

from certificates import Authority, Leaf  # noqa: E402
from coroutines import pytest_configure, pytest_pyfunc_call  # noqa: E402, F401


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority("a root")


@pytest.fixture(scope="session")
def localhost(authority: Authority) -> Leaf:
    return authority.sign("localhost", names=["localhost"], addresses=["127.0.0.1"])


@pytest.fixture(scope="session")
def root(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The root's certificate, as a file."""
    path = tmp_path_factory.mktemp("root") / "root.pem"
    path.write_text(authority.pem)
    return path
