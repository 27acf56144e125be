"""Tests of the programs that are built for other machines."""
