//! A WireGuard server as a transport.
