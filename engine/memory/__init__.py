"""Memories: what a context remembers between decodes."""
