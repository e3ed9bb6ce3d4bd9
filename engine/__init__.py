"""The inference engine: from a GGUF file and text to text."""
