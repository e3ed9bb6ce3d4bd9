"""The only part of the program that knows the engine: its worker thread, and the values that pass to and from it."""
