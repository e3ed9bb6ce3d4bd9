"""Data files of the program's themes; read through `importlib.resources`."""
