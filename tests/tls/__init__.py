"""TLS with other implementations."""
