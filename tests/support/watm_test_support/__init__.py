"""The parts that the tests, benchmarks and demos share."""
