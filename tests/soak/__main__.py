"""`make soak`: mixed traffic of several real clients, for a given time.

Clients roam, leave and come back; handlers fail, and so does another module in the same process;
strangers send arbitrary datagrams. Prints the resources of the server's process once a minute, and
at the end a verdict. Exits with 1 if they grew, or if a client saw an error.
"""

import argparse
import asyncio
import sys
import time

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.tunnels import Peer, config

from . import process, verdict
from .crowd import Crowd

# The number of samples in a short run. Otherwise there is one a minute.
SAMPLES = 12
# Minutes until caches are warm and every kind of event has happened. In a short run it is a
# quarter.
WARM_UP = 5
# A short timeout of UDP flows, so that their number is soon stable.
INTERFACE = "[Watm]\nUdpIdleTimeout = 5\n"
# The number of errors that the report shows.
SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60, help="how long (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what the clients choose (%(default)s)")
    options = parser.parse_args()
    if options.minutes <= 0:
        parser.error("--minutes: more than 0")
    return asyncio.run(soak(options.minutes * 60, options.seed))


async def soak(seconds: float, seed: int) -> int:
    """Runs everything and returns the exit code."""
    server_key = genkey()
    peers = [Peer(addresses=(f"10.0.{n}.1", f"fd00:{n}::1")) for n in range(len(Crowd.HABITS))]
    async with process.started(config(server_key, peers, INTERFACE)) as server:
        crowd = Crowd(server.ports["server"], server.ports["guest"], pubkey(server_key), peers, seed)
        running = asyncio.create_task(crowd.run())
        try:
            samples = await _watch(server, crowd, running, seconds)
        finally:
            running.cancel()
            await asyncio.wait([running])
    warm_up = min(WARM_UP * 60, seconds / 4)
    judged = [sample for sample in samples if sample.seconds > warm_up]
    complaints = verdict.complaints(judged)
    errors = crowd.tally.errors
    print("clients:", ", ".join(f"{name} {count}" for name, count in sorted(crowd.tally.done.items())))
    print(f"unanswered datagrams: {crowd.tally.lost}")
    for error in errors[:SHOWN]:
        print("error:", error)
    for complaint in complaints:
        print("not flat:", complaint)
    if not complaints:
        memory = f"within {verdict.GROWTH_MB} MB" if verdict.judges_memory(judged) else "not judged in so short a run"
        print(f"flat: RSS {memory}, descriptors and threads equal")
    print(f"{len(errors)} errors")
    return 1 if complaints or errors else 0


async def _watch(
    server: process.ServerProcess, crowd: Crowd, running: asyncio.Task[None], seconds: float
) -> list[verdict.Sample]:
    """Takes and prints the samples. Raises a failure of the crowd."""
    samples: list[verdict.Sample] = []
    begin = time.monotonic()
    period = min(60, seconds / SAMPLES)
    for number in range(1, round(seconds / period) + 1):
        await asyncio.wait([running], timeout=max(0, begin + number * period - time.monotonic()))
        if running.done():
            running.result()
        holds = await server.holds()
        sample = verdict.Sample(
            seconds=time.monotonic() - begin,
            rss_mb=server.rss_mb(),
            descriptors=server.descriptors(),
            threads=server.threads(),
            flows=holds["flows"],
            tasks=holds["tasks"],
            restarts=holds["guest_restarts"],
            generation=holds["generation"],
            drops=verdict.drops(holds["counters"]),
            done=crowd.tally.done.total(),
            errors=len(crowd.tally.errors),
        )
        print(verdict.line(sample, samples[-1] if samples else None), flush=True)
        samples.append(sample)
    return samples


sys.exit(main())
