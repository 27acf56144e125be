"""Slow work of commands, in threads.

mitmproxy calls a command, and shows its user the errors that it raises. It does not wait for
coroutines, so a command that only started something could not report a failure. A command therefore
waits for its work, and so do mitmproxy's flows meanwhile: usually some hundredths of a second, and
a second at most, while a module is compiled for the first time on this machine.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TypeVar

from mitmproxy import exceptions

from mitmproxy_watm._errors import plain

PATIENCE = 1.0
"""The seconds that a command waits. Later failures are logged."""

INTERVAL = 0.01
"""The interval of checks, in seconds."""

THREADS = ThreadPoolExecutor(thread_name_prefix="watm command")

Made = TypeVar("Made")


def wait(work: Future[Made], achieved: Callable[[], bool] = lambda: False) -> None:
    """Wait until `work` is done or has `achieved` its purpose. Raises its failure as a `CommandError`."""
    end = time.monotonic() + PATIENCE
    while not wait_for([work], INTERVAL).done:
        if achieved() or time.monotonic() > end:
            return
    if error := work.exception():
        if not isinstance(error, (OSError, ValueError)):
            raise error
        raise exceptions.CommandError(plain(error)) from error
