"""`watm update` and `watm publish` with a real registry, a real web server and real TLS."""

import pathlib
import sys
from collections.abc import Iterator

import pytest

HERE = pathlib.Path(__file__).resolve().parent
# With mitmproxy's programs as processes.
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1] / "host-python" / "tests")]

from authority import Authority, Host  # noqa: E402
from servers import Certificates, registry  # noqa: E402


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def plain_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def host(tmp_path: pathlib.Path, authority: Authority) -> Host:
    return Host(tmp_path / "host", authority)
