"""`make bench`: how fast the module serves, beside mitmproxy's own WireGuard server.

Every server runs the same handlers in a process of its own and meets the same
client. The servers take turns, several times, each time in a new process; the
table has medians. `pinned` puts the server on one CPU and the client on another:
only those figures compare servers, since unpinned ones say more of the scheduler.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import environment
import report
import rounds
import workloads


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run: everything once, a little of each")
    parser.add_argument("--repetitions", type=int, help="server processes of each kind (5; with --quick 1)")
    parser.add_argument("--servers", default=",".join(rounds.SERVERS), help="which of %(default)s")
    parser.add_argument("--placements", default=",".join(rounds.PLACEMENTS), help="which of %(default)s")
    parser.add_argument("--workloads", default=",".join(workloads.FULL), help="which of %(default)s")
    parser.add_argument("--output", type=pathlib.Path, default=environment.ROOT / "build" / "bench.json")
    options = parser.parse_args()

    chosen = workloads.QUICK if options.quick else workloads.FULL
    try:
        plan = rounds.Plan(
            servers=_choice(options.servers, list(rounds.SERVERS)),
            placements=_choice(options.placements, rounds.PLACEMENTS),
            workloads={name: chosen[name] for name in _choice(options.workloads, list(chosen))},
            repetitions=options.repetitions or (1 if options.quick else 5),
        )
        environment.check(set().union(*(rounds.SERVERS[kind] for kind in plan.servers)))
    except environment.Missing as missing:
        print(f"bench: {missing}", file=sys.stderr)
        return 2

    described = environment.describe()
    samples = []
    for sample in plan.run():
        samples.append(sample)
        print(report.line(sample), file=sys.stderr, flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"environment": described, "samples": samples}, indent=1) + "\n")
    print(report.tables(described, samples, plan))
    print(f"every sample: {options.output}")
    return 1 if any("error" in sample for sample in samples) else 0


def _choice(text: str, known: list[str]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise environment.Missing(f"{name!r} is none of {', '.join(known)}")
    return names


sys.exit(main())
