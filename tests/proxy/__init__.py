"""The PROXY protocol with other programs, and connections from clients' addresses."""
