"""Contexts: one decode loop over a model, a memory and a backend."""
