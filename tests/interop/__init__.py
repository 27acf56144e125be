"""Real WireGuard peers against the server."""
