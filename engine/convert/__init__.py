"""Models in other formats become GGUF files; nothing on the way from prompt to text comes here."""
