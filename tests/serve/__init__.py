"""Modules in front of applications, and as plugins of other programs."""
