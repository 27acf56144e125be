"""CPU times of a server's threads, and a quota of a processor for each of its workers, so that the
load of a benchmark has enough of the rest.
"""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator

# Version 1 of control groups, in which each thread can have a group of its own.
GROUPS = pathlib.Path("/sys/fs/cgroup/cpu")
# The period in microseconds, the kernel's default.
PERIOD = 100_000
# The weight; the default is 1024.
WEIGHT = 1 << 18


@contextlib.contextmanager
def preferred() -> Iterator[None]:
    """Prefers programs that start in this block to all others on the machine's processors."""
    if not (GROUPS / "cpu.cfs_quota_us").exists():
        raise SystemExit(f"{GROUPS}: no control groups of version 1 for processors; use --share 0")
    with _groups(["load"]) as [load]:
        (load / "tasks").write_text(str(os.getpid()))
        yield


@contextlib.contextmanager
def limited(session: int, workers: int, percent: int, load: Callable[[], object], period: int = PERIOD) -> Iterator[None]:
    """Limits each of the session's busiest threads under `load` to this share of a processor of its
    own. Other threads share the first one's.
    """
    before = threads(session)
    load()
    spent = {thread: seconds - before.get(thread, 0) for thread, seconds in threads(session).items()}
    busiest = sorted(spent, key=lambda thread: spent[thread], reverse=True)[:workers]
    with _groups(map(str, range(workers))) as groups:
        for group in groups:
            (group / "cpu.cfs_period_us").write_text(str(period))
            (group / "cpu.cfs_quota_us").write_text(str(period * percent // 100))
        for thread in spent:
            number = busiest.index(thread) if thread in busiest else 0
            os.sched_setaffinity(thread, {number})
            (groups[number] / "tasks").write_text(str(thread))
        yield


@contextlib.contextmanager
def _groups(names: Iterable[str]) -> Iterator[list[pathlib.Path]]:
    groups = [GROUPS / f"bench-{os.getpid()}-{name}" for name in names]
    try:
        for group in groups:
            group.mkdir()
            (group / "cpu.shares").write_text(str(WEIGHT))
        yield groups
    finally:
        for group in groups:
            for thread in (group / "tasks").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    (GROUPS / "tasks").write_text(thread)
            group.rmdir()


def used(session: int) -> float:
    """Returns the CPU seconds of a program and its children."""
    return sum(_of(session, "[0-9]*/stat").values())


def threads(session: int) -> dict[int, float]:
    """Returns the CPU seconds of each thread, by its id."""
    return _of(session, "[0-9]*/task/[0-9]*/stat")


def _of(session: int, stats: str) -> dict[int, float]:
    seconds = {}
    for stat in pathlib.Path("/proc").glob(stats):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks = int(fields[11]) + int(fields[12])
                seconds[int(stat.parent.name)] = ticks / os.sysconf("SC_CLK_TCK")
    return seconds
