"""`make bench-workers`: the gain of a second worker for WireGuard."""
