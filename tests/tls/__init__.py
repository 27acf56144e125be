"""TLS against other people's programs."""
