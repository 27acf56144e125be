"""Programs that run beside the demo and end with it."""

import contextlib
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterator


class Missing(Exception):
    """A failure of a part of the demo, in one line."""


class Child:
    """A running program and its output."""

    def __init__(self, name: str, process: subprocess.Popen, log: pathlib.Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    def said(self) -> str:
        """Returns the output so far."""
        return self._log.read_text(errors="replace")

    def wait_for(self, what: str, condition: Callable[[], object], seconds: float) -> None:
        """Waits until `condition` holds. Raises `Missing` with `what` if it does not."""
        end = time.monotonic() + seconds
        while not condition():
            ended = self._process.poll()
            if ended is not None:
                raise Missing(f"{self.name} ended with {ended}: {self._last_words()} ({self._log})")
            if time.monotonic() > end:
                raise Missing(f"{what} within {seconds:.0f} s: {self._last_words()} ({self._log})")
            time.sleep(0.05)

    def _last_words(self) -> str:
        lines = self.said().strip().splitlines()
        return lines[-1].strip() if lines else "it said nothing"


@contextlib.contextmanager
def child(name: str, command: list[str | pathlib.Path], log: pathlib.Path) -> Iterator[Child]:
    """Runs a program for the length of the block."""
    try:
        with log.open("w") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    except OSError as error:
        raise Missing(f"{name} cannot be started: {error}") from error
    try:
        yield Child(name, process, log)
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
