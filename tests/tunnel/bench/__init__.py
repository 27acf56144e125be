"""`make bench-tunnel`: the WireGuard client compared with others."""
