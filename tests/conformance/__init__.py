"""The module and the crate against each other."""
