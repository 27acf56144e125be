"""`make bench-proxy`: the same beside mmproxy."""
