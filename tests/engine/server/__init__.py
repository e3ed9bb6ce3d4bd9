"""The local server, asked by the public `openai` client and by plain HTTP."""
