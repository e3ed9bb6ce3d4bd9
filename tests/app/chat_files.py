"""Small files of chats as each program writes them, in our own words."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

TREE = {
    "title": "A tree",
    "create_time": 1.7e9,
    "update_time": 1.7e9 + 5,
    "current_node": "d",
    "mapping": {
        "r": {"id": "r", "parent": None, "children": ["a"], "message": None},
        "a": {"parent": "r", "message": {"author": {"role": "user"}, "content": {"parts": ["What now?"]}}},
        "b": {"parent": "a", "message": {"author": {"role": "assistant"}, "content": {"parts": ["First."]}}},
        "t": {"parent": "a", "message": {"author": {"role": "tool"}, "content": {"parts": ["tool"]}}},
        "c": {"parent": "t", "message": {"author": {"role": "assistant"}, "content": {"parts": ["Second."]}}},
        "d": {"parent": "c", "message": {"author": {"role": "user"}, "content": {"parts": ["Thanks."]}}},
    },
}
OPEN_WEBUI = [
    {
        "title": "A tree",
        "updated_at": 1_700_000_005,
        "chat": {
            "history": {
                "currentId": "d",
                "messages": {
                    "a": {"id": "a", "parentId": None, "role": "user", "content": "What now?"},
                    "b": {"id": "b", "parentId": "a", "role": "assistant", "content": "First."},
                    "c": {"id": "c", "parentId": "a", "role": "assistant", "content": "Second."},
                    "d": {"id": "d", "parentId": "c", "role": "user", "content": "Thanks."},
                },
            }
        },
    }
]
LLAMA_CHAT = {"id": "k", "name": "A tree", "lastModified": 1_700_000_005_000, "currNode": 5}
LLAMA_MESSAGES = [
    {"id": 1, "convId": "k", "type": "root", "role": "system", "content": "", "parent": -1},
    {"id": 2, "convId": "k", "type": "text", "role": "user", "content": "What now?", "parent": 1},
    {"id": 3, "convId": "k", "type": "text", "role": "assistant", "content": "First.", "parent": 2},
    {"id": 4, "convId": "k", "type": "text", "role": "assistant", "content": "Second.", "parent": 2},
    {"id": 5, "convId": "k", "type": "text", "role": "user", "content": "Thanks.", "parent": 4},
]
LM_STUDIO = {
    "name": "A tree",
    "createdAt": 1_700_000_005_000,
    "messages": [
        {
            "versions": [{"type": "singleStep", "role": "user", "content": [{"type": "text", "text": "What now?"}]}],
            "currentlySelected": 0,
        },
        {
            "versions": [
                {"type": "singleStep", "role": "assistant", "content": [{"type": "text", "text": "First."}]},
                {
                    "type": "multiStep",
                    "role": "assistant",
                    "steps": [{"content": [{"type": "text", "text": "Second.", "tokensCount": None}]}],
                },
            ],
            "currentlySelected": 1,
        },
        {"versions": [{"type": "singleStep", "role": "user", "content": [{"type": "text", "text": "Thanks."}]}]},
    ],
}
SILLY_TAVERN = [
    {"user_name": "You", "character_name": "A tree", "chat_metadata": {}},
    {"name": "You", "is_user": True, "mes": "What now?"},
    {"name": "It", "is_user": False, "mes": "Second.", "swipes": ["First.", "Second."], "swipe_id": 1},
    {"name": "You", "is_user": True, "mes": "Thanks."},
]
JAN = [
    {
        **{"object": "thread.message", "thread_id": "t", "created_at": 1_700_000_000 + i, "role": role},
        "content": [{"type": "text", "text": {"value": text, "annotations": []}}],
    }
    for i, (role, text) in enumerate((("user", "What now?"), ("assistant", "Second."), ("user", "Thanks.")))
]
SHAREGPT = [
    {
        "conversations": [
            {"from": "human", "value": "What now?"},
            {"from": "gpt", "value": "Second."},
            {"from": "human", "value": "Thanks."},
        ]
    }
]
REQUEST = {
    "messages": [
        {"role": "user", "content": "What now?"},
        {"role": "assistant", "content": "Second."},
        {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    ]
}


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def as_lines(values: Sequence[object]) -> bytes:
    return "\n".join(json.dumps(value) for value in values).encode() + b"\n"


def _text(text: str) -> bytes:
    data = text.encode("utf-16-be")
    return struct.pack(">I", len(data)) + data


def _item(name: str, text: str, parts: bytes = struct.pack(">q", 0)) -> bytes:
    flags = bytes(5 if name == "Response: " else 4)
    nothing = struct.pack(">q", 0)
    return _text(name) + _text(text) + _text("") + flags + nothing + nothing + parts


def gpt4all_file() -> bytes:
    part = struct.pack(">q", 1) + _text("Text: ") + _text("Second.") + struct.pack(">q", 0)
    items = [_item("Prompt: ", "What now?"), _item("Response: ", "", part), _item("Prompt: ", "Thanks.")]
    head = b"\xf5\xd5\x53\xcc" + struct.pack(">iq", 12, 1_700_000_005)
    names = _text("id") + _text("A tree") + _text("") + _text("model")
    return head + names + struct.pack(">i", 0) + struct.pack(">i", len(items)) + b"".join(items)


FILES = {
    "chatgpt": as_json([TREE]),
    "open_webui": as_json(OPEN_WEBUI),
    "llama_ui": as_json({"conv": LLAMA_CHAT, "messages": LLAMA_MESSAGES}),
    "llama_rows": as_lines([LLAMA_CHAT, *LLAMA_MESSAGES]),
    "lm_studio": as_json(LM_STUDIO),
    "silly_tavern": as_lines(SILLY_TAVERN),
    "jan": as_lines(JAN),
    "sharegpt": as_json(SHAREGPT),
    "sharegpt_lines": as_lines(SHAREGPT),
    "request": as_json(REQUEST),
    "gpt4all": gpt4all_file(),
}
TREES = ("chatgpt", "open_webui", "llama_ui", "llama_rows", "lm_studio", "silly_tavern")
