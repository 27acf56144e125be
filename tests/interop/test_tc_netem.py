"""Bad networks beside those of tc-netem(8), which run in a kernel of their own: user-mode Linux is a process, and
needs no module of this machine's kernel.

The shares and the delays of both come from their own generators, and the kernel's delays from a real clock. So
the test compares statistics, with the tolerances that the number of datagrams and a busy machine ask for. User-mode
Linux acts up to 20 ms late on a busy machine, so the delays are long. The delays of datagrams that are sent or
arrive while it gets no turn for longer than 10 ms do not count.
"""

import itertools
import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from watm_test_support.repository import ROOT

OURS = ROOT / "watm" / "target" / "release" / "examples" / "network"
GUEST = pathlib.Path(__file__).parent / "netem_guest.py"
LEGACY_STATE = pathlib.Path(__file__).parent / "legacy_state.py"
# The state of FXSAVE has no registers of AVX, so that the C library must not use them.
NO_AVX = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-AVX_Fast_Unaligned_Load"
KERNEL = "linux.uml"
MODULES = pathlib.Path("/usr/lib/uml/modules")

MS = 1_000_000
COUNT, GAP = 1500, 0.002
# The gap with which a delay of the module does not depend on the one before: packets keep their order.
APART = 4.0
# A queue with room for all datagrams.
ROOM = f"limit {2 * COUNT}"
# The time of a datagram of 1000 bytes on the link, in milliseconds.
ON_LINK = 41.1


@dataclass(frozen=True)
class Arrival:
    """The number of a datagram, the times at which it was sent and at which it arrived in milliseconds, whether its
    content was changed, and whether its kernel got no turn at one of these times."""

    number: int
    sent: float
    at: float
    changed: bool
    disturbed: bool = False

    @property
    def delay(self) -> float:
        return self.at - self.sent


@dataclass(frozen=True)
class Network:
    """A network in both notations, and the datagrams that go through it."""

    tc: str
    words: str
    count: int = COUNT
    gap: float = GAP
    bytes: int = 100
    # The gap in the module's network, if it is another one: its time is virtual.
    virtual_gap: float | None = None


# tc-netem takes a random number of 32 bits modulo twice the jitter in nanoseconds. The delays are uniform only if that
# divides 2^32 almost evenly. They are uncorrelated only if it also divides the quarter of 2^32 that is drawn anew.
NETWORKS = {
    "uniform": Network(f"delay 1s 429ms {ROOM}", "delay=1s jitter=429ms", virtual_gap=APART),
    "normal": Network(
        f"delay 1500ms 250ms distribution normal {ROOM}",
        "delay=1500ms jitter=250ms distribution=normal",
        virtual_gap=APART,
    ),
    "correlated": Network(f"delay 1s 134ms 75% {ROOM}", "delay=1s jitter=134ms correlation=75%", virtual_gap=APART),
    "loss": Network("loss 20%", "loss=20%"),
    "bursts": Network("loss gemodel 3% 25% 70% 0%", "burst_enter=3% burst_leave=25% burst_loss=70%", count=6000, gap=0.001),
    "overtaking": Network(f"delay 1s reorder 25% {ROOM}", "delay=1s reorder=25%"),
    "duplicate": Network("duplicate 20%", "duplicate=20%"),
    "corrupt": Network("corrupt 20%", "corrupt=20%", bytes=1400),
    "rate": Network("rate 200kbit limit 50", "rate=200kbit queue=50", count=200, gap=0, bytes=1000),
}

type Pair = tuple[list[Arrival], list[Arrival]]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Returns the arrivals of each network: those of tc-netem, and those of the module."""
    theirs = _theirs(tmp_path_factory.mktemp("netem"))
    return {name: (theirs[name], _ours(network)) for name, network in NETWORKS.items()}


def _theirs(folder: pathlib.Path) -> dict[str, list[Arrival]]:
    settings = folder / "settings.json"
    fields = ("tc", "count", "gap", "bytes")
    settings.write_text(json.dumps([{field: getattr(it, field) for field in fields} for it in NETWORKS.values()]))
    # hostfs gives the kernel the files of this machine, so that it needs no image.
    init = folder / "init"
    log = folder / "log"
    path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    init.write_text(f"#!/bin/sh\nexport {path} {NO_AVX}\nexec {sys.executable} {GUEST} > {log} 2>&1\n")
    init.chmod(0o755)
    (module,) = MODULES.glob("*/kernel/net/sched/sch_netem.ko")
    words = f"mem=256M root=/dev/root rootfstype=hostfs rootflags=/ rw init={init} con=null con0=null,fd:1 quiet"
    command = [sys.executable, LEGACY_STATE, KERNEL, *words.split(), f"watm_netem={settings}", f"watm_module={module}"]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150, check=False)
    result = settings.with_suffix(".out")
    assert result.exists(), ran.stdout + ran.stderr + (log.read_text() if log.exists() else "")
    lists = json.loads(result.read_text())
    stalls = json.loads(settings.with_suffix(".stalls").read_text())

    def disturbed(time: int) -> bool:
        return any(first <= time <= last for first, last in stalls)

    return {
        name: [
            Arrival(number, sent / MS, at / MS, changed, disturbed(sent) or disturbed(at))
            for number, sent, at, changed in arrivals
        ]
        for name, arrivals in zip(NETWORKS, lists, strict=True)
    }


def _ours(network: Network) -> list[Arrival]:
    gap = network.virtual_gap if network.virtual_gap is not None else network.gap
    command = [OURS, network.words, str(network.count), str(round(gap * 1e6)), str(network.bytes)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    arrivals = []
    for line in ran.stdout.splitlines():
        number, delay, changed = line.split()
        sent = int(number) * gap * 1000
        arrivals.append(Arrival(int(number), sent, sent + int(delay) / MS, changed == "1"))
    return arrivals


def delays(arrivals: Sequence[Arrival]) -> list[float]:
    """Returns the delays in the order of the numbers, without those of the times at which the kernel got no turn."""
    undisturbed = [it.delay for it in sorted(arrivals, key=lambda it: it.number) if not it.disturbed]
    assert len(undisturbed) > len(arrivals) / 2, "user-mode Linux seldom got a turn: stop what keeps the processors busy"
    return undisturbed


def lost(arrivals: Sequence[Arrival], count: int) -> list[bool]:
    """Returns for each datagram whether it is lost."""
    there = {it.number for it in arrivals}
    return [number not in there for number in range(count)]


def share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


def after_a_loss(flags: Sequence[bool]) -> float:
    """Returns the share of losses that follow a loss."""
    return share([flag for before, flag in zip(flags, flags[1:], strict=False) if before])


def correlation(numbers: Sequence[float]) -> float:
    """Returns the correlation of each number with the one before."""
    return statistics.correlation(numbers[1:], numbers[:-1])


def same(pair: Pair, of: Callable[[list[Arrival]], float], tolerance: float) -> None:
    """Asserts that a statistic of both is the same, within a tolerance."""
    theirs, ours = map(of, pair)
    assert abs(theirs - ours) <= tolerance, f"tc-netem {theirs:.4g}, the module {ours:.4g}"


@pytest.mark.limit(200)
@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_delays_have_the_same_distribution(measured: dict[str, Pair], name: str) -> None:
    same(measured[name], lambda it: statistics.mean(delays(it)), 40)
    same(measured[name], lambda it: statistics.stdev(delays(it)), 25)
    for number in range(19):
        # The ends of a normal distribution are wide.
        tolerance = 75 if number in (0, 18) else 50
        same(measured[name], lambda it, at=number: statistics.quantiles(delays(it), n=20)[at], tolerance)


def test_the_distributions_differ_from_each_other(measured: dict[str, Pair]) -> None:
    """The test above could tell them apart."""

    def wide(arrivals: list[Arrival]) -> float:
        found = delays(arrivals)
        middle, spread = statistics.mean(found), statistics.stdev(found)
        return share([abs(delay - middle) > 1.9 * spread for delay in found])

    for arrivals in measured["uniform"]:
        assert wide(arrivals) < 0.01
    for arrivals in measured["normal"]:
        assert 0.03 < wide(arrivals) < 0.09


def test_correlated_delays_have_the_same_distribution(measured: dict[str, Pair]) -> None:
    """tc-netem's correlation is lost in the remainder. The module's is as it says."""
    same(measured["correlated"], lambda it: statistics.mean(delays(it)), 30)
    same(measured["correlated"], lambda it: statistics.stdev(delays(it)), 20)
    theirs, ours = (correlation(delays(it)) for it in measured["correlated"])
    assert abs(theirs) < 0.1
    assert abs(ours - 0.75) < 0.08


def test_losses_have_the_same_share(measured: dict[str, Pair]) -> None:
    same(measured["loss"], lambda it: share(lost(it, COUNT)), 0.06)
    same(measured["loss"], lambda it: after_a_loss(lost(it, COUNT)), 0.1)


def test_bursts_have_the_same_share_and_length(measured: dict[str, Pair]) -> None:
    count = NETWORKS["bursts"].count
    same(measured["bursts"], lambda it: share(lost(it, count)), 0.04)
    same(measured["bursts"], lambda it: after_a_loss(lost(it, count)), 0.15)
    # A loss makes the next one likely, as it would not without bursts.
    assert all(after_a_loss(lost(it, count)) > 3 * share(lost(it, count)) for it in measured["bursts"])


def test_the_same_share_overtakes(measured: dict[str, Pair]) -> None:
    same(measured["overtaking"], lambda it: share([delay < 500 for delay in delays(it)]), 0.06)
    same(measured["overtaking"], lambda it: statistics.median(sorted(delays(it))[-500:]), 50)


def test_the_same_share_arrives_twice(measured: dict[str, Pair]) -> None:
    same(measured["duplicate"], lambda it: len(it) / COUNT, 0.06)
    assert all({arrival.number for arrival in it} == set(range(COUNT)) for it in measured["duplicate"])


def test_the_same_share_is_changed(measured: dict[str, Pair]) -> None:
    """tc-netem changes headers too, and such a datagram is lost: a fiftieth of them."""
    same(measured["corrupt"], lambda it: share([arrival.changed for arrival in it]), 0.06)


def test_a_link_has_the_same_rate_and_queue(measured: dict[str, Pair]) -> None:
    """tc-netem counts 14 bytes of a frame for each packet, and the module does not."""

    def spacing(arrivals: list[Arrival]) -> float:
        found = sorted(arrival.at for arrival in arrivals)
        return statistics.median(after - before for before, after in itertools.pairwise(found))

    same(measured["rate"], spacing, ON_LINK / 20)
    # The number of arrivals says nothing: a datagram that is sent late finds a place that another one has left.
    same(measured["rate"], lambda it: max(delays(it)), 3 * ON_LINK)
