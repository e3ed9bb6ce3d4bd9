"""The tables, as the list of steps that lead from an empty file to the schema of today.

A step that was released is never changed; a new schema is a new step.
"""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE chat(
            id INTEGER PRIMARY KEY,
            title TEXT NOT NULL,
            leaf_id INTEGER,                      -- last message of the branch that is shown
            frozen TEXT NOT NULL DEFAULT '{}',    -- JSON: what enters the prompt, fixed at the first Send
            model_ref TEXT NOT NULL DEFAULT '',
            n_ctx INTEGER NOT NULL DEFAULT 0,
            draft TEXT NOT NULL DEFAULT '',
            unread INTEGER NOT NULL DEFAULT 0,
            pinned INTEGER NOT NULL DEFAULT 0,
            deleted_at REAL,
            used_at REAL NOT NULL
        )""",
        """CREATE TABLE message(
            id INTEGER PRIMARY KEY,
            chat_id INTEGER NOT NULL REFERENCES chat(id) ON DELETE CASCADE,
            parent_id INTEGER REFERENCES message(id) ON DELETE CASCADE,
            role TEXT NOT NULL CHECK(role IN ('user', 'assistant', 'system')),
            text TEXT NOT NULL,
            state TEXT NOT NULL CHECK(state IN ('queued', 'streaming', 'done', 'stopped', 'failed', 'interrupted')),
            pinned INTEGER NOT NULL DEFAULT 0,
            error TEXT NOT NULL DEFAULT '',
            created_at REAL NOT NULL,
            CHECK(parent_id < id)                 -- a branch cannot run in a circle
        )""",
        "CREATE INDEX message_chat ON message(chat_id)",
        "CREATE INDEX message_parent ON message(parent_id)",
        "CREATE INDEX message_unfinished ON message(state) WHERE state IN ('queued', 'streaming')",
        """CREATE TABLE chunk(
            message_id INTEGER NOT NULL REFERENCES message(id) ON DELETE CASCADE,
            seq INTEGER NOT NULL,
            text TEXT NOT NULL,
            PRIMARY KEY(message_id, seq)
        ) WITHOUT ROWID""",
        """CREATE TABLE generation(
            message_id INTEGER PRIMARY KEY REFERENCES message(id) ON DELETE CASCADE,
            model_fp TEXT NOT NULL,
            n_prompt INTEGER NOT NULL,
            n_reused INTEGER NOT NULL,
            n_computed INTEGER NOT NULL,
            n_generated INTEGER NOT NULL,
            token_ids BLOB NOT NULL,              -- i32[n], little-endian
            finish TEXT NOT NULL,
            prefill_ms REAL NOT NULL,
            gen_ms REAL NOT NULL
        )""",
        """CREATE TABLE session(
            id INTEGER PRIMARY KEY,
            chat_id INTEGER NOT NULL REFERENCES chat(id) ON DELETE CASCADE,
            model_fp TEXT NOT NULL,
            leaf_id INTEGER,
            file TEXT NOT NULL DEFAULT '',
            n_used INTEGER NOT NULL DEFAULT 0,
            n_ctx INTEGER NOT NULL DEFAULT 0,
            bytes INTEGER NOT NULL DEFAULT 0,
            used_at REAL NOT NULL,
            UNIQUE(chat_id, model_fp)
        )""",
        """CREATE TABLE span(
            session_id INTEGER NOT NULL REFERENCES session(id) ON DELETE CASCADE,
            message_id INTEGER NOT NULL REFERENCES message(id) ON DELETE CASCADE,
            place TEXT NOT NULL CHECK(place IN ('in', 'out', 'summary')),
            PRIMARY KEY(session_id, message_id)
        ) WITHOUT ROWID""",
    ),
    (
        "ALTER TABLE chat ADD COLUMN overflow TEXT NOT NULL DEFAULT 'shift'",
        "ALTER TABLE chat ADD COLUMN sampling TEXT NOT NULL DEFAULT ''",  # JSON; '': as the settings say
        "ALTER TABLE message ADD COLUMN deleted_at REAL",
        "ALTER TABLE message ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX message_unindexed ON message(id) WHERE indexed=0",
        """CREATE TABLE undo(
            id INTEGER PRIMARY KEY,
            chat_id INTEGER NOT NULL REFERENCES chat(id) ON DELETE CASCADE,
            message_id INTEGER,                   -- the first message that was deleted; NULL: the whole chat
            leaf_id INTEGER,                      -- the chat's leaf before
            at REAL NOT NULL
        )""",
        "INSERT INTO undo(chat_id, leaf_id, at) "
        "SELECT id, leaf_id, deleted_at FROM chat WHERE deleted_at IS NOT NULL ORDER BY deleted_at, id",
        "CREATE VIRTUAL TABLE message_fts USING fts5(text, cjk)",
        "ALTER TABLE session ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE generation ADD COLUMN template_hash TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE generation ADD COLUMN params TEXT NOT NULL DEFAULT ''",  # JSON
        "ALTER TABLE generation ADD COLUMN engine TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE generation ADD COLUMN isa TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE generation ADD COLUMN context_hash TEXT NOT NULL DEFAULT ''",
    ),
)
"""Step i leads from schema i to schema i + 1."""

SCHEMA = len(MIGRATIONS)
