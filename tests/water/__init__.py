"""WATER modules in the Go runtime and in this one."""
