"""The real window with a real model."""
