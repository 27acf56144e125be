"""A quota of each processor for a server's workers, so that the load has enough of the rest."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator

from .servers import threads

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
def limited(session: int, workers: int, percent: int, load: Callable[[], object]) -> Iterator[None]:
    """Limits each of the session's busiest threads under `load` to this share of a processor of its
    own. Other threads share the first one's.
    """
    before = threads(session)
    load()
    used = {thread: seconds - before.get(thread, 0) for thread, seconds in threads(session).items()}
    busiest = sorted(used, key=lambda thread: used[thread], reverse=True)[:workers]
    with _groups(map(str, range(workers))) as groups:
        for group in groups:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(PERIOD * percent // 100))
        for thread in used:
            number = busiest.index(thread) if thread in busiest else 0
            os.sched_setaffinity(thread, {number})
            (groups[number] / "tasks").write_text(str(thread))
        yield


@contextlib.contextmanager
def _groups(names: Iterable[str]) -> Iterator[list[pathlib.Path]]:
    groups = [GROUPS / f"bench-tls-{os.getpid()}-{name}" for name in names]
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
