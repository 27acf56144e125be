"""Certificates for the tests of TLS."""

import pathlib

import pytest

from watm_test_support.certificates import Authority, Leaf


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority("a root")


@pytest.fixture(scope="session")
def localhost(authority: Authority) -> Leaf:
    return authority.sign("localhost", names=["localhost"], addresses=["127.0.0.1"])


@pytest.fixture(scope="session")
def root(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns the root's certificate as a file."""
    path = tmp_path_factory.mktemp("root") / "root.pem"
    path.write_text(authority.pem)
    return path
