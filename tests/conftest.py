"""Plugins for all tests: a time limit for each, and skips for missing programs. As root a missing program is a failure."""

pytest_plugins = ("watm_test_support.coroutines", "watm_test_support.limits", "watm_test_support.needs")
