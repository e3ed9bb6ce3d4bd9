"""The CPU backend: lowering to the compiled core."""
