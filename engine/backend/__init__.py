"""Backends: where graphs run."""
