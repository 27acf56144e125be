"""The exit of a mitmproxy process. The addon installs it.

When mitmproxy ends, its connections to servers by UDP end in threads of mitmproxy_rs, which ask for the interpreter.
Before version 3.14, Python ends a thread that asks for it during the exit, and that library crashes then: SIGSEGV after
everything is done. So the exit waits until those threads have had the interpreter.
"""

import atexit
import sys
import time

GRACE = 0.05
"""The time in seconds. The threads need less than a millisecond of it."""


def install() -> None:
    """Make the exit of this process wait, if its Python needs that. Repeated calls have no effect."""
    if sys.version_info < (3, 14):
        atexit.unregister(_wait)
        atexit.register(_wait)


def _wait() -> None:
    time.sleep(GRACE)
