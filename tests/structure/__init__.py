"""Rules for the sources themselves."""
