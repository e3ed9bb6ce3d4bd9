"""Data files of the program's icons; read through `importlib.resources`."""
