"""Beside mmproxy, as its README measures: PING and PONG over fifty connections for ten seconds, by TCP
and by UDP, and two hundred connections opened at once. From clients' addresses, in a namespace of its
own. `make bench-proxy`."""

import argparse
import contextlib
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from load import burst, echo, ping  # noqa: E402
from namespace import Namespace, namespace  # noqa: E402
from serving import PORT, ROOT, UPSTREAM, serving  # noqa: E402

MMPROXY = ROOT / "build/tools/bin/mmproxy"
HOST = "127.0.0.1"


@contextlib.contextmanager
def ours(inside: Namespace, protocol: str) -> Iterator[None]:
    with serving(inside, transparent="{ client-port = true }"):
        yield


@contextlib.contextmanager
def theirs(inside: Namespace, protocol: str) -> Iterator[None]:
    # The number of listeners is its backlog, and 1 by default, with which it loses connections.
    command = [MMPROXY, "--listeners", "1024", "-l", f"{HOST}:{PORT}", "-4", f"{HOST}:{UPSTREAM}", "-p", protocol]
    process = subprocess.Popen(inside.command(*command), stderr=subprocess.DEVNULL, env={"RUST_LOG": "off"})
    try:
        time.sleep(0.3)
        yield
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    results: dict = {question: {name: [] for name in PROGRAMS} for question in QUESTIONS}
    with namespace() as inside:
        inside.bring_answers_back()
        with inside.inside(), echo(HOST, UPSTREAM):
            # Alternating, so that what else the machine does is the same for both.
            for _ in range(arguments.rounds):
                for question, (protocol, measure) in QUESTIONS.items():
                    for name, program in PROGRAMS.items():
                        with program(inside, protocol), inside.inside():
                            measured = measure(HOST, PORT, protocol, arguments.seconds)
                        results[question][name].append(measured)
    for question, by_name in results.items():
        medians = {name: statistics.median(values) for name, values in by_name.items()}
        ratio = medians["watm"] / medians["mmproxy"]
        shown = ", ".join(f"{name} {median:,.3f}" for name, median in medians.items())
        print(f"{question}: {shown}, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
