"""mitmproxy's own programs with the mode and the addon included."""

import re
import sys
from typing import NoReturn

from mitmproxy_watm.mode.spec import complete
from mitmproxy_watm.supported import check

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
    from mitmproxy_watm.mode.signals import Ending, Signals

    # Each of the programs asks for these when it starts. `Watm` comes first, so that other addons
    # find its metadata in a flow.
    default_addons = addons.default_addons
    addons.default_addons = lambda: [Watm(), Signals(), *default_addons(), Ending()]
    sys.argv[1:] = complete_arguments(sys.argv[1:])
    sys.exit(getattr(main, program)())
