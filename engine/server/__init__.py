"""The local OpenAI-compatible server: HTTP in front of `engine.scheduler`. Needs the extra `server`."""
