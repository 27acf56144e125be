"""Plugins of all tests: a time limit for each test, and skips (as root, failures) for missing
requirements."""

pytest_plugins = ("coroutines", "limits", "needs")
