"""Reading and writing GGUF files."""
