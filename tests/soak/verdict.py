"""The samples of each minute, and the check that they are flat at the end."""

from dataclasses import dataclass

# The most megabytes by which the minimum of the last third may exceed that of the first, after the
# warm-up: the memory of four clients in the middle of a transfer. The minimum counts, because a
# module that consumes memory takes up to 32 MB until its restart, and a leak is never returned.
GROWTH_MB = 12
# Seconds that the samples must span before memory is judged. Until then the high-water marks of the
# modules and of the allocator still rise with each new kind of event.
MEMORY_SECONDS = 120


@dataclass(frozen=True)
class Sample:
    """A sample of the server's process."""

    seconds: float
    rss_mb: float
    descriptors: int
    threads: int
    flows: int
    tasks: int
    restarts: int
    """Restarts of the module that fails."""
    generation: int
    """Restarts of the WireGuard module, which must be 0."""
    drops: dict[str, int]
    """Dropped and refused items since the start, by reason."""
    done: int
    errors: int


def drops(counters: dict[str, int]) -> dict[str, int]:
    """Returns those of a server's counters that count drops and refusals, by reason."""
    words = ("dropped", "refused", "malformed", "evicted", "expired", "timed_out", "ignored", "withheld")
    return {name: count for name, count in counters.items() if count and any(word in name for word in words)}


def line(sample: Sample, before: Sample | None) -> str:
    """Formats the sample in one line. Drops are those since the previous sample."""
    earlier = before.drops if before else {}
    news = {name: count - earlier.get(name, 0) for name, count in sample.drops.items()}
    reasons = ", ".join(f"{name} {count}" for name, count in sorted(news.items()) if count)
    return (
        f"{sample.seconds / 60:6.1f} min  {sample.rss_mb:6.1f} MB  {sample.descriptors:3} descriptors  "
        f"{sample.threads:3} threads  {sample.flows:4} flows  {sample.tasks:4} tasks  {sample.restarts:4} restarts  "
        f"{sample.done:8} actions  {sample.errors:3} errors  dropped: {reasons or 'nothing'}"
    )


def judges_memory(samples: list[Sample]) -> bool:
    """Returns true if the samples after the warm-up suffice to distinguish growth from a start."""
    return len(samples) >= 3 and samples[-1].seconds - samples[0].seconds >= MEMORY_SECONDS


def complaints(samples: list[Sample]) -> list[str]:
    """Returns the reasons why resources grew; empty if they did not. The samples are those after
    the warm-up, at least three.
    """
    if len(samples) < 3:
        return [f"{len(samples)} samples after the warm-up are too few to tell"]
    third = len(samples) // 3
    first, last = (min(s.rss_mb for s in part) for part in (samples[:third], samples[-third:]))
    found = []
    if judges_memory(samples) and last - first > GROWTH_MB:
        found.append(f"RSS grew from {first:.1f} to {last:.1f} MB, by more than {GROWTH_MB} MB")
    for name in ("descriptors", "threads"):
        seen = sorted({getattr(sample, name) for sample in samples})
        if len(seen) > 1:
            found.append(f"the number of {name} was not always the same: {', '.join(map(str, seen))}")
    if samples[-1].generation:
        found.append(f"the WireGuard module was restarted {samples[-1].generation} times")
    return found
