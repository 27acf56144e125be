"""Proofs beyond tests by example: see README.md."""
