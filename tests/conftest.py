"""Every test has a time limit; one that needs what is not there skips itself, and as root fails."""

pytest_plugins = ("coroutines", "limits", "needs")
