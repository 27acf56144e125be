"""Comparison of the WireGuard module with the crate that it is built from."""
