"""The module's TCP on a bottleneck that it shares with the kernel's: a sample of `make bench-fairness`."""

from collections.abc import Iterator

import pytest

from .bench.clients import OURS
from .bench.fairness import CONTROLS, Bottleneck, bottleneck

SECONDS = 4
# The bounds of each connection's share. Half is fair. A sender that backs off at every loss, or at
# none, gets nearly nothing or nearly all.
LEAST = 0.2
# A busy machine slows one of them down at times.
TRIES = 3


@pytest.fixture(scope="module")
def shared() -> Iterator[Bottleneck]:
    with bottleneck() as running:
        yield running


@pytest.mark.parametrize("control", CONTROLS)
def test_neither_starves_the_other(shared: Bottleneck, control: str) -> None:
    taken = []
    for _ in range(TRIES):
        taken.append(shared.take(OURS, control, SECONDS))
        if LEAST < taken[-1].share < 1 - LEAST:
            return
    pytest.fail(f"our share: {taken}")
