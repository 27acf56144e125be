"""The files that the other tests take from the Go module cache."""

import hashlib

import pytest

from .modules import shipped_digests


@pytest.mark.parametrize("path", shipped_digests(), ids=lambda path: "/".join(path.parts[-3:]))
def test_the_file_is_the_one_that_was_looked_at(path) -> None:
    assert hashlib.sha256(path.read_bytes()).hexdigest() == shipped_digests()[path]
