"""`make bench-completion`: completion times of traffic over changing paths, with the module's TCP
and with the kernel's.

Both connect to the same wireguard-go in a namespace, whose end is the kernel's, over emulated paths
with the same conditions: the kernel's TCP through an interface of wireguard-go, the module's
through `watm dial`. The kernel's congestion control is cubic. Prints JSON, with the machine and the
commit. The ratio is that of the medians.
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from watm_test_support import machine
from watm_test_support.paths import Path, path
from watm_test_support.repository import ROOT
from watm_test_support.spaces import Space

from ..services import running
from ..shapes import SHAPES
from .clients import CONGESTION, INSIDE, KERNEL, OURS, SERVER_PORT, Client, client, served

PROGRAM = ROOT / "tests" / "tunnel" / "shapes.py"
PORT = 7020
# The time limit of traffic in seconds. All of it takes a few.
LIMIT = 20
# The conditions of every path, before its own.
USUAL = "--round-trip 0 --jitter 0 --lost 0 --overtaking 0 --duplicated 0 --mbits 50".split()


@dataclass(frozen=True)
class Condition:
    """Flags of the path, and further flags that are set a number of seconds after the traffic begins."""

    options: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    after: float = 0


STEADY = ("--round-trip", "20ms")
CONDITIONS = {
    "steady": Condition(STEADY),
    # The order of datagrams is kept.
    "jitter": Condition(("--jitter", "2ms-20ms")),
    "step": Condition(later=("--round-trip", "60ms")),
    "stall": Condition(STEADY, ("--stall", "3s"), 0.1),
    "reordered": Condition((*STEADY, "--overtaking", "0.05")),
    "duplicated": Condition((*STEADY, "--duplicated", "0.2")),
    "lost": Condition((*STEADY, "--lost", "0.01")),
}


@dataclass(frozen=True)
class Taken:
    """Seconds until the last byte arrived, and the longest time of a message in milliseconds."""

    seconds: float
    slowest_ms: float


class Comparison:
    """Running clients, each with a path of its own. Use `comparing`."""

    def __init__(self, near: Space, clients: dict[str, tuple[Path, Client]]) -> None:
        self._near, self._clients = near, clients

    def take(self, kind: str, condition: Condition, shape: str, direction: str) -> Taken | None:
        """Runs one connection with traffic of this shape. Returns None if it does not end."""
        between, one = self._clients[kind]
        between.change(*USUAL, *condition.options)
        command = self._near.command(sys.executable, PROGRAM, "run", one.host, one.port, shape, direction)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "ready\n", f"{kind} has no connection"
            if not condition.after:
                between.change(*condition.later)
            process.stdin.write("\n")
            process.stdin.flush()
            if condition.after:
                time.sleep(condition.after)
                between.change(*condition.later)
            said, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, f"{kind} failed"
        return Taken(**json.loads(said))


@contextlib.contextmanager
def comparing(kinds: Sequence[str] = (KERNEL, OURS), congestion: str | None = None) -> Iterator[Comparison]:
    """Runs these clients for the length of the block."""
    with served(kinds, congestion) as (near, far, tunnels), contextlib.ExitStack() as stack:
        for space in (near, far):
            # The next connection must not know the path from an earlier one.
            space.run("sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1")
        stack.enter_context(running(far, sys.executable, PROGRAM, "serve", INSIDE, PORT, listens=PORT))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clients = {}
        for kind in kinds:
            between = stack.enter_context(path(SERVER_PORT, inside=near.command))
            tunnel = replace(tunnels[kind], endpoint=between.port)
            clients[kind] = between, stack.enter_context(client(kind, near, tunnel, f"{INSIDE}:{PORT}", folder))
        yield Comparison(near, clients)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench-completion", description=__doc__.partition("\n")[0])
    parser.add_argument("--conditions", default=",".join(CONDITIONS), help="which of %(default)s")
    parser.add_argument("--shapes", default=",".join(SHAPES), help="which of %(default)s")
    parser.add_argument("--directions", default="up,down", help="which of %(default)s")
    parser.add_argument("--tries", type=int, default=5, help="connections of each (%(default)s)")
    options = parser.parse_args()
    described = machine.described() | {"congestion_control": CONGESTION}
    chosen = (getattr(options, name).split(",") for name in ("conditions", "shapes", "directions"))
    rows = []
    with comparing() as comparison:
        for name, shape, direction in itertools.product(*chosen):
            taken: dict[str, list[Taken | None]] = {KERNEL: [], OURS: []}
            for number in range(options.tries):
                for kind in machine.turns(list(taken), number):
                    taken[kind].append(comparison.take(kind, CONDITIONS[name], shape, direction))
            row = {"condition": name, "shape": shape, "direction": direction, "ratio": ratio(taken, statistics.median)}
            rows.append(row | {kind: [vars(one) if one else None for one in tries] for kind, tries in taken.items()})
            print(name, shape, direction, row["ratio"], file=sys.stderr, flush=True)
    print(json.dumps({"environment": described, "rows": rows}, indent=1))


def ratio(taken: dict[str, list[Taken | None]], of: Callable[[list[float]], float] = min) -> float | None:
    """Returns the ratio of the module's time to the kernel's, each by `of`, the shortest by
    default. None if either never ended.
    """
    times = {kind: [one.seconds for one in tries if one] for kind, tries in taken.items()}
    return round(of(times[OURS]) / of(times[KERNEL]), 2) if all(times.values()) else None


if __name__ == "__main__":
    main()
