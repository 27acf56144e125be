"""The module's TCP on a bottleneck that it shares with the kernel's: a sample of `make bench-fairness`."""

import socket
from collections.abc import Iterator

import pytest

from watm_test_support.paths import HOST, path

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


def test_the_queue_of_a_bottleneck_has_the_given_length() -> None:
    size, mbits, queue = 1000, 1, 0.1
    fits = queue * mbits * 1e6 / 8 / size
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
        far.bind((HOST, 0))
        far.settimeout(1)
        with path(far.getsockname()[1], "--mbits", str(mbits), "--queue", f"{queue}s") as between:
            for _ in range(8 * round(fits)):
                near.sendto(bytes(size), (HOST, between.port))
            arrived = 0
            try:
                while far.recv(2 * size):
                    arrived += 1
            except TimeoutError:
                pass
    assert fits <= arrived <= fits + 4
