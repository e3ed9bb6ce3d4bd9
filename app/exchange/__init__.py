"""Chats as files: those of other programs, and our own; nothing here knows the window."""
