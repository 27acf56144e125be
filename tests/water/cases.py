"""Which program is tested with which modules."""

import pytest

from .modules import Module, components, own, shipped
from .tools import GO, WATM, Tool

# A program and a module that it should be able to load.
_LOADS: list[tuple[Tool, Module]] = [
    *((GO, module) for module in [*shipped(), *own()]),
    *((WATM, module) for module in [*shipped(), *own(), *components()]),
]


def loads(*, fixed: bool = False, own: bool = False, plain: bool = False) -> pytest.MarkDecorator:
    """Runs a test with every program and module; or with those modules alone that choose their
    destination, that are of this project, that change nothing."""
    chosen = [
        (tool, module)
        for tool, module in _LOADS
        if (module.destination is not None or not fixed)
        and (module.own or not own)
        and not (module.turns and plain)
    ]
    return pytest.mark.parametrize(("tool", "module"), chosen, ids=str)


def pairs() -> pytest.MarkDecorator:
    """Runs a test with two at a time of those that understand each other: each with its
    neighbour, and each with one half a round away."""
    chosen = []
    for turns in (False, True):
        ring = [(tool, module) for tool, module in _LOADS if module.turns == turns]
        for index, one in enumerate(ring):
            for step in sorted({1, len(ring) // 2}):
                other = ring[(index + step) % len(ring)]
                name = ", ".join(f"{tool}-{module}" for tool, module in (one, other))
                chosen.append(pytest.param(one, other, id=name))
    return pytest.mark.parametrize(("dialling", "serving"), chosen)
