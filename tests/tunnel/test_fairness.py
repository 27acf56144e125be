"""The module's TCP on a bottleneck that it shares with the kernel's: a sample of `make bench-fairness`."""

from collections.abc import Iterator

import pytest

from .bench.clients import OURS, OURS_BBR
from .bench.fairness import Bottleneck, Link, bottleneck

LINK = Link(round_trip=20, queue=40)
SECONDS = WARM = 4
# The bounds of the module's share; 1 is fair. A sender that backs off at every loss, or at none, gets
# nearly nothing or nearly all.
LEAST, MOST = 0.4, 1.6
# A busy machine slows one of them down at times.
TRIES = 3


@pytest.fixture(scope="module")
def shared() -> Iterator[Bottleneck]:
    with bottleneck() as running:
        yield running


@pytest.mark.parametrize(("first", "control"), [(OURS, "cubic"), (OURS, "bbr"), (OURS_BBR, "bbr")])
def test_neither_starves_the_other(shared: Bottleneck, first: str, control: str) -> None:
    taken = []
    for _ in range(TRIES):
        taken.append(shared.take(first, [control], LINK, SECONDS, WARM))
        if LEAST < taken[-1].share < MOST:
            return
    pytest.fail(f"the share: {[one.share for one in taken]}")
