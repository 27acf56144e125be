"""The PROXY protocol, with other people's programs, and from clients' addresses."""
