"""Plugins of all tests: a time limit for each test, and skips (as root, failures) for missing
requirements."""

pytest_plugins = ("watm_test_support.coroutines", "watm_test_support.limits", "watm_test_support.needs")
