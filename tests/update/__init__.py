"""Updates of modules from a real registry and a real web server."""
