"""Models that run elsewhere, behind an OpenAI-compatible endpoint. Knows nothing of Qt and nothing of the engine."""
