"""`make bench-tunnel`: our WireGuard client beside others."""
