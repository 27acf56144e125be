"""`make bench-water`: the cost of a connection through a module, in the Go runtime and in this one.

Every client dials the same echo and sink, a process of its own, and checks every
byte. The clients take turns, several times, each time in a new process; the table
has medians. `pinned` puts the services on one CPU and the client on another.
"""

import argparse
import json
import os
import pathlib
import sys

from tests.bench import environment, report, rounds
from watm_test_support import machine
from watm_test_support.repository import ROOT

from ..tools import GODEBUG
from . import questions, targets
from .clients import KINDS, commands


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-water", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run: everything once, a little of each")
    parser.add_argument(
        "--repetitions", type=int, help="client processes of each kind (5, fewer where it takes minutes)"
    )
    parser.add_argument("--studies", default=",".join(questions.STUDIES), help="which of %(default)s")
    parser.add_argument("--clients", default=",".join(KINDS), help="which of %(default)s")
    parser.add_argument("--placements", default="pinned,unpinned", help="which of %(default)s")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "bench-water.json")
    options = parser.parse_args()

    # The folder in which the Go runtime keeps compiled modules.
    temporary = ROOT / "build" / "water"
    temporary.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(temporary)
    os.environ["GODEBUG"] = GODEBUG
    try:
        names = environment.choice(options.studies, list(questions.STUDIES))
        studies = [questions.STUDIES[name](quick=options.quick) for name in names]
        clients = environment.choice(options.clients, list(KINDS))
        placements = environment.choice(options.placements, ["pinned", "unpinned"])
        environment.need([pathlib.Path(part) for kind in clients for part in commands()[kind] if "/" in str(part)])
    except environment.Missing as missing:
        print(f"bench-water: {missing}", file=sys.stderr)
        return 2

    described = machine.described()
    records = []
    for record in rounds.run(studies, clients, placements, options.repetitions or (1 if options.quick else 5)):
        records.append(record)
        print(report.line(record), file=sys.stderr, flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"environment": described, "samples": records}, indent=1) + "\n")
    print(report.tables(described, records, studies))
    print("\n".join(["", *targets.lines(records)]))
    print(f"\nevery sample: {options.output}")
    return 1 if any("error" in record for record in records) else 0


sys.exit(main())
