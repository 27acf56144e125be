"""`make bench-proxy`: comparison with mmproxy, measured as in its README. PING and PONG over fifty
connections for ten seconds, by TCP and by UDP, and two hundred connections opened at once.
Connections come from clients' addresses, in a network namespace.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import time
from collections.abc import Iterator

from watm_test_support import machine
from watm_test_support.repository import ROOT

from ..namespace import Namespace, namespace
from ..serving import PORT, UPSTREAM, serving
from .load import burst, echo, ping

MMPROXY = ROOT / "build/tools/bin/mmproxy"
HOST = "127.0.0.1"


@contextlib.contextmanager
def ours(inside: Namespace, protocol: str) -> Iterator[int]:
    # mmproxy has a thread for each core and listens on IPv4, so this does too.
    workers = os.cpu_count() or 1
    with serving(inside, transparent="{ client-port = true }", workers=workers, address=HOST) as running:
        yield running.process.pid


@contextlib.contextmanager
def theirs(inside: Namespace, protocol: str) -> Iterator[int]:
    # The number of listeners is also its backlog. With the default of 1 it loses connections.
    command = [MMPROXY, "--listeners", "1024", "-l", f"{HOST}:{PORT}", "-4", f"{HOST}:{UPSTREAM}", "-p", protocol]
    process = subprocess.Popen(inside.command(*command), stderr=subprocess.DEVNULL, env={"RUST_LOG": "off"})
    try:
        time.sleep(0.3)
        yield process.pid
        assert process.poll() is None, f"mmproxy ended with {process.returncode}"
    finally:
        process.terminate()
        process.wait()


PROGRAMS = {"watm": ours, "mmproxy": theirs}
QUESTIONS = {
    "PING by TCP, a second": ("tcp", ping),
    "PING by UDP, a second": ("udp", ping),
    "200 connections, s": ("tcp", burst),
}


def spent(process: int) -> float:
    """Returns the CPU time of its threads in microseconds. Other load on the machine affects it
    less than it affects throughput.
    """
    times = pathlib.Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in times) / 1000


def shown(taken: dict[str, list[float]]) -> str:
    """Formats medians with minimum and maximum, and the ratio of the medians."""
    each = ", ".join(f"{name} {machine.spread(values, 3)}" for name, values in taken.items())
    if taken.keys() != PROGRAMS.keys():
        return each
    return f"{each}, ratio {statistics.median(taken['watm']) / statistics.median(taken['mmproxy']):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="which of %(default)s")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "bench-proxy.json")
    arguments = parser.parse_args()
    described = machine.described()
    programs = arguments.programs.split(",")
    results: dict = {question: {name: [] for name in programs} for question in QUESTIONS}
    costs: dict = {question: {name: [] for name in programs} for question in QUESTIONS}
    with namespace() as inside:
        inside.bring_answers_back()
        with inside.inside(), echo(HOST, UPSTREAM):
            # The rounds alternate, so that other load on the machine affects both alike.
            for number in range(arguments.rounds):
                for question, (protocol, measure) in QUESTIONS.items():
                    for name in machine.turns(programs, number):
                        with PROGRAMS[name](inside, protocol) as process, inside.inside():
                            began, before = time.monotonic(), spent(process)
                            measured = measure(HOST, PORT, protocol, arguments.seconds)
                            cost = (spent(process) - before) / (time.monotonic() - began)
                        results[question][name].append(measured)
                        costs[question][name].append(cost / measured)
    for question, by_name in results.items():
        print(f"{question}: {shown(by_name)}", flush=True)
        if question.startswith("PING"):
            print(f"    microseconds of a core for each: {shown(costs[question])}", flush=True)
    every = {"environment": described, "results": results, "microseconds_of_a_core": costs}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(every, indent=1) + "\n")
    print(f"every sample: {arguments.output}")


if __name__ == "__main__":
    main()
