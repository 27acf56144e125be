"""`python -m tests.hostile`: see README.md."""

import argparse
import statistics
import sys

from .attackers import ATTACKERS, Attacker
from .neighbour import Echo
from .process import CONNECTIONS, DESCRIPTORS, DRAIN, Taken, run

# Seconds: for the good module, and the least for a seed.
UNDISTURBED = 3
SHORTEST = 0.8
# The growth of the process beyond a module's memory that is allowed, in MiB.
SEEDS_PER_GOOD = 3
# The permitted growth of the process besides the memory of modules, in MiB.
ALLOWANCE = 64


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="for all seeds together")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--seeds", type=int, help="how many; by default as many as press on all places once")
    parser.add_argument("--kind", choices=sorted(ATTACKERS), help="of modules; by default all")
    arguments = parser.parse_args()
    kinds = [arguments.kind] if arguments.kind else sorted(ATTACKERS)
    failures = 0
    for kind in kinds:
        failures += _attack(kind, ATTACKERS[kind], arguments, arguments.seconds / len(kinds))
    print(f"{failures} failed" if failures else "all within bounds", flush=True)
    return min(failures, 1)


def _attack(kind: str, attacker: Attacker, arguments: argparse.Namespace, seconds: float) -> int:
    # A first run for the compiler: its memory is not the module's, and its result is kept.
    run(attacker, None, 0.5)
    good = run(attacker, None, UNDISTURBED)
    _report(kind, "good", good, good, [])
    undisturbed, disturbed = list(good[1].times), {}
    count = arguments.seeds or attacker.preferences
    each = max(SHORTEST, (seconds - UNDISTURBED) / (count + count // SEEDS_PER_GOOD))
    failures = 0
    for done, seed in enumerate(range(arguments.seed, arguments.seed + count), 1):
        found = run(attacker, seed, each)
        broken = list(_broken(attacker, found, good))
        failures += bool(broken)
        _report(kind, str(seed), found, good, broken)
        disturbed[seed] = found[1].times
        if done % SEEDS_PER_GOOD == 0:
            undisturbed += run(attacker, None, each)[1].times
    _compare(kind, undisturbed, disturbed)
    return failures


def _compare(kind: str, undisturbed: list[float], disturbed: dict[int, list[float]]) -> None:
    """Prints how many times as long the neighbour's echo takes beside a seed, and beside all of them.

    Undisturbed runs count together, since the p99 of one changes several times over within a minute.
    """
    base = Echo(undisturbed).percentile(99)
    ratios = [Echo(times).percentile(99) / base for times in disturbed.values()]
    together = Echo([time for times in disturbed.values() for time in times]).percentile(99) / base
    print(
        f"{kind:9} p99 of the neighbour: undisturbed {base * 1000:.2f} ms, beside all seeds x{together:.2f}, "
        f"beside one x{statistics.median(ratios):.2f} in the median, x{max(ratios):.2f} at most, "
        f"above x2 with {sum(ratio > 2 for ratio in ratios)} of {len(ratios)}",
        flush=True,
    )


def _broken(attacker: Attacker, found: tuple[Taken, Echo], good: tuple[Taken, Echo]):
    (taken, echo), (usual, _) = found, good
    memory = attacker.memory_mib * attacker.instances
    if taken.rss_mib - usual.rss_mib > memory + ALLOWANCE:
        yield f"grows by more than {memory} + {ALLOWANCE} MiB"
    if taken.descriptors > usual.descriptors + DESCRIPTORS + CONNECTIONS + 64:
        yield f"takes more than {DESCRIPTORS} + {CONNECTIONS} descriptors"
    if taken.threads > usual.threads + 16:
        yield "takes threads"
    if echo.lost or not echo.times:
        yield "the neighbour suffers"
    if taken.end > DRAIN + 5:
        yield "does not end"


def _report(kind: str, seed: str, found: tuple[Taken, Echo], good: tuple[Taken, Echo], broken: list[str]) -> None:
    taken, echo = found
    print(
        f"{kind:9} {seed:>5}  RSS {taken.rss_mib - good[0].rss_mib:+7.1f} MiB  fds {taken.descriptors:5}"
        f"  threads {taken.threads:3}  p50 {echo.percentile(50) * 1000:6.2f} ms  p99 {echo.percentile(99) * 1000:7.2f} ms"
        f"  lost {echo.lost}  term {taken.end:5.2f} s{'  FAILED: ' if broken else ''}{'; '.join(broken)}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
