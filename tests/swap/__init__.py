"""`make swap-load`: traffic through ten swaps of the module."""
