"""Vision towers: what an image model is, one file per family, as `engine.arch` has for text models."""
