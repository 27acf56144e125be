"""The versions of mitmproxy that the mode and the addon work with. `cli` and `mitmproxy` check them first."""

import functools
import logging
import re

logger = logging.getLogger(__name__)

OLDEST = "11.0.2"
NEWEST = "12.3.1"
RANGE = f"{OLDEST} to {NEWEST}"
"""The range that the tests cover. `tests/setup` pins both ends."""

ADVICE = f"mitmproxy-watm supports {RANGE}; install 'mitmproxy>={OLDEST},<={NEWEST}'"


@functools.cache
def check() -> None:
    """Warn once of a mitmproxy that is newer than the tested ones.

    Raises ImportError if it is missing or too old.
    """
    version = _installed()
    if _numbers(version) < _numbers(OLDEST):
        raise ImportError(f"mitmproxy {version} is too old: {ADVICE}")
    if _numbers(version) > _numbers(NEWEST):
        logger.warning(f"mitmproxy {version} is newer than the tested versions: if it fails, {ADVICE}")


def _installed() -> str:
    try:
        from mitmproxy import version
    except ImportError as error:
        raise ImportError(f"mitmproxy is missing ({error}): {ADVICE}") from error
    return version.VERSION


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version, without its suffix: 13 and 0 of `13.0.dev`."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()
