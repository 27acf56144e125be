"""`make bench`: how fast the module serves, compared with mitmproxy's own servers.

Every server runs the same handlers in a process of its own and meets the same client. The servers
take turns, several times, each time in a new process; the table has medians. `pinned` puts the
server on one CPU and the client on another: only those figures compare servers, since unpinned ones
mostly measure the scheduler.
"""

import argparse
import json
import pathlib
import sys

from . import environment, report, rounds
from .studies import STUDIES


def main() -> int:
    servers = list(dict.fromkeys(kind for study in STUDIES.values() for kind in study.servers))
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run: everything once, a little of each")
    parser.add_argument(
        "--repetitions", type=int, help="server processes of each kind (5, fewer where it takes minutes)"
    )
    parser.add_argument("--studies", default=",".join(STUDIES), help="which of %(default)s")
    parser.add_argument("--servers", default=",".join(servers), help="which of %(default)s")
    parser.add_argument("--placements", default="pinned,unpinned", help="which of %(default)s")
    parser.add_argument("--output", type=pathlib.Path, default=environment.ROOT / "build" / "bench.json")
    options = parser.parse_args()

    try:
        studies = [STUDIES[name](quick=options.quick) for name in environment.choice(options.studies, list(STUDIES))]
        chosen = environment.choice(options.servers, servers)
        placements = environment.choice(options.placements, ["pinned", "unpinned"])
        environment.check()
        if any(study.needs_device for study in studies):
            environment.need_device()
    except environment.Missing as missing:
        print(f"bench: {missing}", file=sys.stderr)
        return 2

    described = environment.describe()
    records = []
    for record in rounds.run(studies, chosen, placements, options.repetitions or (1 if options.quick else 5)):
        records.append(record)
        print(report.line(record), file=sys.stderr, flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"environment": described, "samples": records}, indent=1) + "\n")
    print(report.tables(described, records, studies))
    print(f"\nevery sample: {options.output}")
    return 1 if any("error" in record for record in records) else 0


sys.exit(main())
