"""`make soak`: mixed traffic for as long as asked."""
