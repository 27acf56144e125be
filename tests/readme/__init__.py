"""The commands and configurations of the pages."""
