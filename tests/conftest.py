"""Every test has a time limit; one that needs what is not there skips itself, and as root fails."""

pytest_plugins = ("watm_test_support.coroutines", "watm_test_support.limits", "watm_test_support.needs")
