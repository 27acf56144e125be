"""A part of each processor and no more for a server's workers, so that the rest is enough for what loads them."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator

from servers import threads

# Version 1 of control groups, where a thread can be in a group of its own.
GROUPS = pathlib.Path("/sys/fs/cgroup/cpu")
# Microseconds. Short, so that clients do not see a server that stands still.
PERIOD = 100_000
# Of all that runs, ours get their part first: 1024 is what others have.
WEIGHT = 1 << 18


@contextlib.contextmanager
def limited(session: int, workers: int, percent: int, load: Callable[[], object]) -> Iterator[None]:
    """Each of the session's busiest threads under `load` has so much of a processor of its own. What else
    it has shares the first one's."""
    if not (GROUPS / "cpu.cfs_quota_us").exists():
        raise SystemExit(f"{GROUPS}: no control groups of version 1 for processors; leave --share out")
    before = threads(session)
    load()
    used = {thread: seconds - before.get(thread, 0) for thread, seconds in threads(session).items()}
    busiest = sorted(used, key=lambda thread: used[thread], reverse=True)[:workers]
    groups = [GROUPS / f"bench-tls-{os.getpid()}-{number}" for number in range(workers)]
    try:
        for group in groups:
            group.mkdir()
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(PERIOD * percent // 100))
            (group / "cpu.shares").write_text(str(WEIGHT))
        for thread in used:
            number = busiest.index(thread) if thread in busiest else 0
            os.sched_setaffinity(thread, {number})
            (groups[number] / "tasks").write_text(str(thread))
        yield
    finally:
        for group in groups:
            for thread in (group / "tasks").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    (GROUPS / "tasks").write_text(thread)
            group.rmdir()
