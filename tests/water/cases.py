"""The combinations of programs and modules in the tests."""

import pytest

from .modules import Module, components, own, shipped
from .tools import GO, WATM, Tool

# Each program with each module that it must load.
_LOADS: list[tuple[Tool, Module]] = [
    *((GO, module) for module in [*shipped(), *own()]),
    *((WATM, module) for module in [*shipped(), *own(), *components()]),
]


def loads(*, fixed: bool = False, own: bool = False, plain: bool = False) -> pytest.MarkDecorator:
    """Runs a test with every program and module. `fixed` selects modules that choose their
    destination, `own` those of this project, and `plain` those that do not change the bytes.
    """
    chosen = [
        (tool, module)
        for tool, module in _LOADS
        if (module.destination is not None or not fixed)
        and (module.own or not own)
        and not (module.turns and plain)
    ]
    return pytest.mark.parametrize(("tool", "module"), chosen, ids=str)


def pairs() -> pytest.MarkDecorator:
    """Runs a test with pairs of compatible programs and modules: each with its neighbour, and each
    with the one half a round away.
    """
    chosen = []
    for turns in (False, True):
        ring = [(tool, module) for tool, module in _LOADS if module.turns == turns]
        for index, one in enumerate(ring):
            for step in sorted({1, len(ring) // 2}):
                other = ring[(index + step) % len(ring)]
                name = ", ".join(f"{tool}-{module}" for tool, module in (one, other))
                chosen.append(pytest.param(one, other, id=name))
    return pytest.mark.parametrize(("dialling", "serving"), chosen)
