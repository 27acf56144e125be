"""Runs the studies: the order of the servers, and their CPUs."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import asdict

from watm_test_support import machine

from . import environment
from .processes import Failed
from .studies import Placement, Study


def run(studies: list[Study], servers: list[str], placements: list[str], repetitions: int) -> Iterator[dict]:
    """Yields one record for each piece of work, server, placement and repetition, as they arrive."""
    for study, repetition in itertools.product(studies, range(repetitions)):
        if repetition >= study.most_repetitions:
            continue
        kinds = [kind for kind in study.servers if kind in servers]
        for placement, kind in itertools.product(study.placements, machine.turns(kinds, repetition)):
            if placement not in placements:
                continue
            labels = {"study": study.title, "server": kind, "placement": placement, "repetition": repetition}
            try:
                for sample in study.run(kind, _cpus(placement)):
                    yield labels | asdict(sample) | {"load": os.getloadavg()[0]}
            except Failed as failed:
                yield labels | {"error": str(failed)}


def _cpus(placement: str) -> Placement:
    cpus = environment.cpus()
    return Placement({cpus[0]}, {cpus[1]}) if placement == "pinned" else Placement(set(cpus), set(cpus))
