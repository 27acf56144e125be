"""Updates of modules, from a registry and a web server that are not ours."""
