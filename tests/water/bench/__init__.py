"""`make bench-water`: the cost of a connection in both runtimes."""
