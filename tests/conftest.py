"""Plugins for all tests: a time limit for each, skips for missing programs, and the output of failed ones.

As root a missing program is a failure.
"""

pytest_plugins = (
    "watm_test_support.coroutines",
    "watm_test_support.limits",
    "watm_test_support.needs",
    "watm_test_support.printed",
)
