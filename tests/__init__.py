"""The tests, benchmarks and demos of the whole."""
