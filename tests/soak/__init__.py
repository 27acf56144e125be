"""`make soak`: mixed traffic for a given time."""
