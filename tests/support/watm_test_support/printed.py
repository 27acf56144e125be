"""A pytest plugin: a failed program's output is in the report of the test that ran it."""

import subprocess

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call):
    report = yield
    error = call.excinfo and call.excinfo.value
    if isinstance(error, subprocess.CalledProcessError | subprocess.TimeoutExpired):
        for stream, printed in (("output", error.stdout), ("error", error.stderr)):
            if printed:
                text = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
                report.sections.append((f"the program's standard {stream}", text))
    return report
