"""Rules for the repository itself."""
