"""`watm update` and `watm publish` with a real registry, a real web server and real TLS."""

import pathlib
from collections.abc import Iterator

import pytest

from .authority import Authority, Host
from .servers import Certificates, registry


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
