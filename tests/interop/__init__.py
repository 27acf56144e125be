"""Real peers against our server."""
