"""The programs built for other machines."""
