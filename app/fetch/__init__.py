"""Fetching models: a transfer that survives being killed, and the hub that says what there is. Knows nothing of Qt."""
