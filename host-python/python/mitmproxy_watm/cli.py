"""mitmproxy's own programs with the mode and the addon included."""

import re
import sys
from typing import TYPE_CHECKING, NoReturn

from mitmproxy_watm.mode.spec import complete
from mitmproxy_watm.supported import check

if TYPE_CHECKING:
    from mitmproxy_watm.mode.program import Program

_TUN = re.compile(r"watm:(tun\b|[^?@]*\btun\.wasm\b)")
_SPEC = re.compile(r"(?P<option>(?:--mode=|-m|--set=)?(?:mode=)?)(?P<spec>watm:.*)", re.DOTALL)


def mitmproxy() -> NoReturn:
    """Runs `mitmproxy-watm`."""
    _run("mitmproxy")


def mitmdump() -> NoReturn:
    """Runs `mitmdump-watm`."""
    _run("mitmdump")


def mitmweb() -> NoReturn:
    """Runs `mitmweb-watm`."""
    _run("mitmweb")


def complete_arguments(arguments: list[str]) -> list[str]:
    """Rewrites each specification of the `watm:` mode so that mitmproxy can parse it."""
    found = ((argument, _SPEC.fullmatch(argument)) for argument in arguments)
    return [match["option"] + complete(match["spec"]) if match else argument for argument, match in found]


def _run(program: str) -> NoReturn:
    try:
        check()
    except ImportError as error:
        sys.exit(f"{program}-watm: {error}")
    from mitmproxy import addons
    from mitmproxy.tools import main

    from mitmproxy_watm.mitmproxy import Watm
    from mitmproxy_watm.mode.program import split
    from mitmproxy_watm.mode.signals import Ending, Signals

    # Each of the programs asks for these when it starts. `Watm` comes first, so that other addons
    # find its metadata in a flow.
    default_addons = addons.default_addons
    addons.default_addons = lambda: [Watm(), Signals(), *default_addons(), Ending()]
    own, words = split(sys.argv[1:])
    run = None if words is None else _program(program, words)
    if run is not None and not any(_TUN.search(argument) for argument in own):
        own += ["--mode", "watm:tun"]
    sys.argv[1:] = complete_arguments(own)
    result = getattr(main, program)()
    sys.exit(run.status if run is not None and run.status is not None else result)


def _program(host: str, words: list[str]) -> "Program":
    """Returns the program to run in the mode `watm:tun`."""
    if not words:
        sys.exit(f"usage: {host}-watm [OPTIONS] exec -- PROGRAM [ARGUMENT ...]")
    if host == "mitmproxy":
        sys.exit("mitmproxy-watm: exec needs the terminal for the program; use mitmdump-watm or mitmweb-watm")
    from mitmproxy_watm.mode.program import Program

    # The program's output is not mixed with that of mitmproxy.
    sys.stdout = sys.stderr
    return Program(words, ends_host=host == "mitmdump")
