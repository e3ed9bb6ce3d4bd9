"""The values that storage hands out and takes in, and the requests and events that cross its thread's border."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from app.bridge.messages import Overflow, ReplyRecord, Role, UserError

MessageState = Literal["queued", "streaming", "done", "stopped", "failed", "interrupted"]


@dataclass(frozen=True, slots=True)
class ChatRecord:
    """One chat without its messages.

    Attributes:
        leaf_id: last message of the branch that is shown; None before the first.
        frozen: JSON of what enters the prompt, fixed at the first Send.
        model_ref: path of the model that answered last.
        used_at: seconds since the epoch.
        overflow: what happens when the context is full.
        sampling: JSON of how tokens are chosen; empty: as the settings say.
    """

    id: int
    title: str
    used_at: float
    leaf_id: int | None = None
    frozen: str = "{}"
    model_ref: str = ""
    n_ctx: int = 0
    draft: str = ""
    is_unread: bool = False
    is_pinned: bool = False
    overflow: Overflow = "shift"
    sampling: str = ""


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One message, with what is known of how it was generated.

    Attributes:
        parent_id: the message it answers or follows; None for the root of a chat.
        token_ids: i32 bytes of the ids the model made; empty for what a person wrote.
        model_fp: fingerprint of the model that made them.
        record: how it was made.
        siblings: ids of all versions of this message, itself included, oldest first; empty where it is the only one.
    """

    id: int
    chat_id: int
    parent_id: int | None
    role: Role
    text: str
    state: MessageState = "done"
    is_pinned: bool = False
    error: str = ""
    token_ids: bytes = b""
    model_fp: str = ""
    n_generated: int = 0
    tok_s: float = 0.0
    siblings: tuple[int, ...] = ()
    record: ReplyRecord = field(default_factory=ReplyRecord)


@dataclass(frozen=True, slots=True)
class Generation:
    """What a message's record does not tell of how it was generated."""

    n_prompt: int
    n_reused: int
    n_computed: int
    finish: str
    prefill_ms: float
    gen_ms: float


@dataclass(frozen=True, slots=True)
class TreeMessage:
    """One message of a tree.

    Attributes:
        created_at: seconds since the epoch.
        generation: None for what no model made.
    """

    record: MessageRecord
    created_at: float
    generation: Generation | None = None


@dataclass(frozen=True, slots=True)
class ChatTree:
    """A chat with the messages of all its branches, each behind its parent."""

    chat: ChatRecord
    messages: tuple[TreeMessage, ...]


@dataclass(frozen=True, slots=True)
class ReadTrees:
    """Ask for whole chats, for all where none is named; `TreesRead` answers.

    Attributes:
        target: what they are wanted for; the answer has it too.
    """

    chat_ids: tuple[int, ...]
    target: str


@dataclass(frozen=True, slots=True)
class KeepTrees:
    """Keep whole chats that are not there yet, all or none; their numbers are free ones. `TreesKept` answers."""

    trees: tuple[ChatTree, ...]


@dataclass(frozen=True, slots=True)
class AddMessages:
    """Keep new messages, each the child of the one before it or of its own parent; the last becomes the leaf.

    Attributes:
        chat: the chat as it is from now on; it is made where it does not exist.
    """

    chat: ChatRecord
    messages: tuple[MessageRecord, ...]


@dataclass(frozen=True, slots=True)
class OpenChat:
    """Ask for a chat with the messages of its branch; `ChatContent` answers."""

    chat_id: int


@dataclass(frozen=True, slots=True)
class ShowBranch:
    """Show the branch through a message; `ChatContent` answers."""

    chat_id: int
    message_id: int


@dataclass(frozen=True, slots=True)
class ForkChat:
    """Make a chat of the branch up to a message; `ChatContent` answers.

    Attributes:
        chat: the new chat.
        first_id: the copies of the messages get this id and those that follow.
    """

    chat: ChatRecord
    message_id: int
    first_id: int


@dataclass(frozen=True, slots=True)
class SetDraft:
    """Keep what stands in the composer; chat_id None for a chat that has no message yet."""

    chat_id: int | None
    text: str


@dataclass(frozen=True, slots=True)
class RenameChat:
    """Give a chat another title."""

    chat_id: int
    title: str


@dataclass(frozen=True, slots=True)
class SetOverflow:
    """What happens when a chat's context is full."""

    chat_id: int
    overflow: Overflow


@dataclass(frozen=True, slots=True)
class PinMessage:
    """Let a message never leave the context, or let it leave again."""

    message_id: int
    is_pinned: bool


@dataclass(frozen=True, slots=True)
class MarkRead:
    """The chat's last reply was seen, or was not."""

    chat_id: int
    is_unread: bool


@dataclass(frozen=True, slots=True)
class DeleteChat:
    """Move a chat to the bin."""

    chat_id: int


@dataclass(frozen=True, slots=True)
class DeleteMessage:
    """Move a message and all that follows it to the bin; `ChatContent` answers with what is shown now."""

    chat_id: int
    message_id: int


@dataclass(frozen=True, slots=True)
class UndoDelete:
    """Bring back what was deleted last; `ChatRestored` answers where there is something."""


@dataclass(frozen=True, slots=True)
class EmptyBin:
    """Delete for good what is in the bin, session files included."""


@dataclass(frozen=True, slots=True)
class SearchChats:
    """Ask which chats have a message with all words of a text; `ChatsFound` answers."""

    text: str


@dataclass(frozen=True, slots=True)
class SetDiskBudget:
    """Session files may take so many bytes of the disk; 0: as many as are reasonable."""

    n_bytes: int


@dataclass(frozen=True, slots=True)
class ListSessions:
    """Ask for the session files; `SessionsListed` answers."""


@dataclass(frozen=True, slots=True)
class PinSession:
    """Keep a session file whatever the budget says, or do so no longer; `SessionsListed` answers."""

    name: str
    is_pinned: bool


@dataclass(frozen=True, slots=True)
class WipeSessions:
    """Delete session files; `SessionsListed` answers."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CloseStore:
    """Write what is pending and end the thread."""


StoreRequest = (
    AddMessages
    | OpenChat
    | ShowBranch
    | ForkChat
    | SetDraft
    | RenameChat
    | SetOverflow
    | PinMessage
    | MarkRead
    | DeleteChat
    | DeleteMessage
    | UndoDelete
    | EmptyBin
    | SearchChats
    | SetDiskBudget
    | ListSessions
    | PinSession
    | WipeSessions
    | ReadTrees
    | KeepTrees
    | CloseStore
)


@dataclass(frozen=True, slots=True)
class StoreOpened:
    """The store can be used.

    Attributes:
        next_id: first number that is free both for chats and for messages.
        draft: what stood in the composer of a chat without messages.
        notice: what happened to the file, a sentence; empty where nothing did.
        n_undo: deletions that can be undone.
        is_readonly: nothing can be changed.
    """

    chats: tuple[ChatRecord, ...]
    next_id: int
    draft: str
    notice: str
    n_undo: int = 0
    is_readonly: bool = False


@dataclass(frozen=True, slots=True)
class ChatContent:
    """A chat and the messages of the branch that is shown, from the root on.

    Attributes:
        out_ids: messages that are out of the model's context.
        n_used: tokens in the context when it was last left; 0 where that is not known.
    """

    chat: ChatRecord
    messages: tuple[MessageRecord, ...]
    out_ids: frozenset[int] = frozenset()
    n_used: int = 0
    n_ctx: int = 0


@dataclass(frozen=True, slots=True)
class ChatRestored:
    """A chat, or messages of it, came back from the bin."""

    chat: ChatRecord


@dataclass(frozen=True, slots=True)
class ChatsFound:
    """The chats that have a message with all words of a text."""

    text: str
    chat_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class SessionFile:
    """One session file.

    Attributes:
        title: of its chat; empty where the chat is in the bin.
        used_at: seconds since the epoch.
    """

    name: str
    title: str
    n_bytes: int
    used_at: float
    is_pinned: bool


@dataclass(frozen=True, slots=True)
class SessionsListed:
    """The session files, the one used last first, and how much of the disk they may take."""

    files: tuple[SessionFile, ...]
    budget_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class TreesRead:
    """Whole chats, the one used last first."""

    trees: tuple[ChatTree, ...]
    target: str


@dataclass(frozen=True, slots=True)
class TreesKept:
    """Whole chats are on disk now."""

    chats: tuple[ChatRecord, ...]


@dataclass(frozen=True, slots=True)
class ReplySaved:
    """The end of a reply is on disk."""

    message_id: int


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """Something could not be read or written."""

    error: UserError


StoreEvent = (
    StoreOpened
    | ChatContent
    | ChatRestored
    | ChatsFound
    | SessionsListed
    | TreesRead
    | TreesKept
    | ReplySaved
    | StoreFailed
)
