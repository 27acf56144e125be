"""WATER modules in WATER's own runtime and in ours."""
