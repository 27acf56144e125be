"""`make bench-tls`: the cost of TLS in front of an application, with the module and with other
servers.

Each server in turn stands between wrk and an echo of HTTP bodies.

wrk sends bodies of 10, 100, 1000 and 10000 bytes over many connections, and then opens a connection
for each request and resumes its session by a ticket. All servers use one P-256 certificate and TLS
1.3. With `--ciphers same` the cipher is ChaCha20-Poly1305, and with `--ciphers default` the one
that each negotiates with wrk. On two processors the servers share both with wrk, so requests for
each second of the server's own CPU time are the figure to compare. The last figure is the gain of a
second worker: each worker is limited to a part of one processor, so that wrk has enough of both.
"""

import argparse
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict

from watm_test_support import machine
from watm_test_support.certificates import Authority
from watm_test_support.ports import free_port
from watm_test_support.quota import limited, preferred, used
from watm_test_support.repository import ROOT

from .servers import CIPHER, HAVE_WORKERS, HOST, SERVERS, Case, running

SIZES = (10, 100, 1000, 10000)
# The number of connections to a part of a processor. Opening many more would be most of its work.
FEW = 50

Key = tuple[str, str]
# Requests of each round, per second and per second of CPU time.
Samples = dict[Key, list[tuple[float, float]]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-tls", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run: everything once, for a second")
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="each round has every server once (%(default)s)")
    parser.add_argument("--connections", type=int, default=500, help="at once (%(default)s)")
    parser.add_argument("--servers", default=",".join(SERVERS), help="which of %(default)s")
    parser.add_argument("--workers", default="1,2", help="how many; none: only the last part (%(default)s)")
    parser.add_argument("--share", type=int, default=25, help="in the last part, in %%; 0: leave it out (%(default)s)")
    parser.add_argument("--ciphers", choices=("same", "default"), default="same", help="see above (%(default)s)")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "bench-tls.json")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds = 1, 1

    names = options.servers.split(",")
    described = machine.described()
    samples: dict[str, Samples] = {}
    with tempfile.TemporaryDirectory() as folder_name:
        folder = pathlib.Path(folder_name)
        for workers in map(int, filter(None, options.workers.split(","))):
            measured: Samples = defaultdict(list)
            for number in range(options.rounds):
                for name in machine.turns(names, number):
                    for load, sample in measure(name, workers, folder, options).items():
                        measured[load, name].append(sample)
                        print(f"{workers} {load} {name}: {sample[0]:.0f}/s", file=sys.stderr, flush=True)
            samples[str(workers)] = measured
            print(table(workers, measured, names), flush=True)
        if options.share:
            names = [name for name in names if name in HAVE_WORKERS]
            with preferred():
                limits = scaling(names, folder, options)
            samples.update({f"{workers}, each {options.share} %": measured for workers, measured in limits.items()})
            print(gains(limits, names, options), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    flat = {w: {f"{load}, {name}": s for (load, name), s in m.items()} for w, m in samples.items()}
    every = {"environment": described, "ciphers": options.ciphers, "samples": flat}
    options.output.write_text(json.dumps(every, indent=1) + "\n")
    print(f"every sample: {options.output}")
    return 0


def scaling(names: list[str], folder: pathlib.Path, options: argparse.Namespace) -> dict[int, Samples]:
    samples: dict[int, Samples] = {1: defaultdict(list), 2: defaultdict(list)}
    for number in range(options.rounds):
        for name in machine.turns(names, number):
            for workers, measured in samples.items():
                for load, sample in measure(name, workers, folder, options, options.share).items():
                    measured[load, name].append(sample)
                    shown = f"{workers} at {options.share} %, {load} {name}: {sample[0]:.0f}/s"
                    print(shown, file=sys.stderr, flush=True)
    return samples


def measure(
    name: str, workers: int, folder: pathlib.Path, options: argparse.Namespace, share: int = 0
) -> dict[str, tuple[float, float]]:
    """Measures requests per second, and per second of CPU time, for each load. `share` limits each
    worker to that percentage of a processor.
    """
    pem = folder / "server.pem"
    pem.write_text(Authority("a root").sign("localhost", names=["localhost"]).pem)
    to, port = free_port(), free_port()
    # One worker has a processor of its own.
    here, there = ("0", "1") if workers == 1 and not share else ("0,1", "0,1")
    echo = [str(ROOT / "target/release/examples/echo"), f"{HOST}:{to}", "2" if share else str(workers)]

    def ask(load: str) -> float:
        size = 10 if load == "handshakes" else int(load.split()[0])
        headers = ("-H", "Connection: close") if load == "handshakes" else ()
        return wrk(port, size, there, FEW if share else options.connections, folder, options, *headers)

    taken = {}
    case = Case(folder, pem, port, to, workers, CIPHER if options.ciphers == "same" else None)
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(echo, to, there))
        session = stack.enter_context(running(SERVERS[name](case), port, here))
        if share:
            stack.enter_context(limited(session, workers, share, lambda: ask("handshakes")))
        for load in [*(f"{size} bytes" for size in SIZES), "handshakes"]:
            before = used(session)
            rate = ask(load)
            spent = used(session) - before
            taken[load] = (rate, rate * options.seconds / max(spent, 0.01))
    return taken


def wrk(
    port: int, size: int, cpus: str, connections: int, folder: pathlib.Path, options: argparse.Namespace, *headers: str
) -> float:
    script = folder / "body.lua"
    script.write_text(f'wrk.method = "POST"\nwrk.body = string.rep("a", {size})\n')
    threads = len(cpus.split(","))
    command = ["taskset", "--cpu-list", cpus, "wrk", f"-t{threads}", f"-c{connections}", f"-d{options.seconds}s"]
    command += ["--timeout", "10s", "-s", str(script), *headers, f"https://{HOST}:{port}/"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60 + options.seconds).stdout
    found = re.search(r"Requests/sec:\s*([\d.]+)", said)
    assert found, said
    errors = re.search(r"Non-2xx.*|Socket errors: connect [1-9].*", said)
    assert not errors, said
    return float(found[1])


def table(workers: int, measured: Samples, names: list[str]) -> str:
    lines = []
    width = 40
    for column, title in enumerate(("requests a second", "requests for each second of the server's processors")):
        lines += ["", f"{workers} worker{'s' * (workers > 1)}: {title}, medians [least..most] (and of hitch's)", ""]
        lines.append(f"{'':12}" + "".join(f"{name:>{width}}" for name in names))
        for load in dict.fromkeys(load for load, _ in measured):
            medians = {name: statistics.median(s[column] for s in measured[load, name]) for name in names}
            cells = []
            for name in names:
                ratio = f" ({medians[name] / medians['hitch']:4.2f})" if "hitch" in medians else ""
                figures = machine.spread([sample[column] for sample in measured[load, name]], 0)
                cells.append(f"{figures}{ratio}".rjust(width))
            lines.append(f"{load:12}" + "".join(cells))
    return "\n".join(lines)


def gains(samples: dict[int, Samples], names: list[str], options: argparse.Namespace) -> str:
    """Runs rounds in pairs. Returns the gain of a second worker in requests per second, and the
    part of their quota that the workers used. A value far below 1 means that they waited for the
    load.
    """
    title = f"2 workers beside 1, each {options.share} % of a processor: requests a second (and what was used)"
    lines = ["", title, ""]

    def used_of(workers: int, load: str, name: str) -> float:
        seconds = statistics.median(rate / each for rate, each in samples[workers][load, name])
        return seconds / (workers * options.share / 100)

    lines.append(f"{'':12}" + "".join(f"{name:>24}" for name in names))
    for load in dict.fromkeys(load for load, _ in samples[1]):
        cells = []
        for name in names:
            pairs = zip(samples[2][load, name], samples[1][load, name], strict=True)
            gain = statistics.median(two[0] / one[0] for two, one in pairs)
            cells.append(f"{gain:.2f} ({used_of(1, load, name):.0%}, {used_of(2, load, name):.0%})".rjust(24))
        lines.append(f"{load:12}" + "".join(cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
