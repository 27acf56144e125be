"""The module's TCP compared with the kernel's over the same paths: a sample of `make bench-completion`."""

from collections.abc import Iterator

import pytest

from .bench.clients import KERNEL, OURS
from .bench.completion import CONDITIONS, Comparison, Taken, comparing, ratio

# The largest ratio to the kernel's time. A larger one means that something waits for the wrong
# timer.
MOST = 3
# A busy machine is slow at times, so the shortest of this many runs counts.
TRIES = 4


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    with comparing() as running:
        yield running


@pytest.mark.parametrize(
    ("condition", "shape", "direction"),
    [
        ("steady", "bulk", "up"),
        ("jitter", "push", "up"),
        ("jitter", "bulk", "up"),
        ("step", "trickle-then-bulk", "up"),
        ("stall", "trickle", "up"),
        ("reordered", "bulk", "up"),
        ("duplicated", "bulk", "up"),
        ("lost", "bulk", "up"),
        # The kernel sends, and relies on the module's reports of gaps and duplicates.
        ("reordered", "bulk", "down"),
        ("duplicated", "bulk", "down"),
    ],
)
def test_traffic_takes_about_as_long_as_the_kernels(
    comparison: Comparison, condition: str, shape: str, direction: str
) -> None:
    taken: dict[str, list[Taken | None]] = {KERNEL: [], OURS: []}
    for _ in range(TRIES):
        for kind, tries in taken.items():
            tries.append(comparison.take(kind, CONDITIONS[condition], shape, direction))
        assert taken[OURS][-1], "it never came to an end"
        if (times := ratio(taken)) and times < MOST:
            return
    pytest.fail(f"{ratio(taken)} times as long: {taken}")
