"""Checks which files write to standard output and standard error."""

import re

from watm_test_support.repository import ROOT

SOURCES = ("runtime", "host-python")

# The log is in one place, so that `--log-format` applies to every line.
STANDARD_ERROR = {
    "runtime/cli/src/logging/mod.rs",
    # The process between the log and a program, whose errors it writes among.
    "runtime/launch/src/linux/helper.rs",
    # A tool of the build, without a log.
    "host-python/packaging/src/main.rs",
}
STANDARD_OUTPUT = {
    "runtime/cli/src/output.rs",
    # The bytes of a connection.
    "runtime/cli/src/stdio.rs",
    # Lines for Tor, which must be flushed one by one.
    "runtime/cli/src/commands/pluggable/tor/mod.rs",
}


def users(pattern: str) -> set[str]:
    """Returns the files of the host with this in their code, without tests."""
    found = set()
    for source in SOURCES:
        for path in (ROOT / source).glob("**/src/**/*.rs"):
            # The tests of a file are a module at its end. Other code for tests may be anywhere.
            code, *_ = path.read_text().partition("\n#[cfg(test)]\nmod ")
            lines = (line for line in code.splitlines() if not line.lstrip().startswith("//"))
            if any(re.search(pattern, line) for line in lines):
                found.add(str(path.relative_to(ROOT)))
    return found


def test_the_log_alone_writes_to_standard_error():
    assert users(r"\beprint(ln)?!|\bdbg!|\bio::stderr\b|\bstderr\(\)") == STANDARD_ERROR


def test_results_alone_are_on_standard_output():
    assert users(r"\bio::stdout\b|\bstdout\(\)") == STANDARD_OUTPUT
    # The program's own macros, which keep errors.
    assert {path.split("/src/")[0] for path in users(r"\bprint(ln)?!")} == {"runtime/cli"}
