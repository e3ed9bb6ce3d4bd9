"""Icons, themes and presets, read through importlib.resources."""
