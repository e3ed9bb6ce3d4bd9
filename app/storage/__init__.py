"""What is kept on disk: chats, messages and drafts in one SQLite file, written by one thread."""
