"""Tests of the commands and configurations on the pages."""
