"""`make bench-tls`: the cost of TLS in front of an application."""
