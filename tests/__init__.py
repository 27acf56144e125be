"""Tests, benchmarks and demos that need several parts of the project."""
