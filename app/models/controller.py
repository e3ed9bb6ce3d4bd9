"""What the actions of the window call: new chat, send, stop and the rest; nothing here waits."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.messages import (
    N_CTX_DEFAULT,
    EngineEvent,
    JobFailed,
    ModelInfo,
    ModelLoaded,
    ModelLoading,
    ModelsFound,
    PrefillProgress,
    ReplyFinished,
    ReplyStarted,
    Role,
    SessionNotSaved,
    TextChunk,
)
from app.bridge.places import model_name
from app.launch import default_models_folder
from app.models.catalogue import ModelCatalogue
from app.models.chat_list import ChatListModel, ChatRow
from app.models.conversation import ConversationModel
from app.models.generation import GenerationState
from app.models.open_chat import OpenChat, message_item, prompt_of, title_of
from app.models.ports import Engine, Store
from app.models.replies import Replies, Reply
from app.models.status import StatusBoard
from app.settings import Settings
from app.storage import records
from app.storage.records import ChatContent, ChatRecord, MessageRecord, StoreEvent, StoreOpened

DRAFT_MS = 400
"""A draft is kept so long after the last key."""


class ChatController(QObject):
    """Turns what a person does, and what the engine and storage tell, into changes of the state objects.

    Attributes:
        chats: the list of chats.
        conversation: the open chat.
        generation: what the model does for the open chat.
        catalogue: the models that were found.

    Signals:
        ready: the chats were read and the last one is open or being opened.
        chat_opened(chat_id): another chat is shown; -1 for a new one without messages.
        draft_restored(text): the composer should hold this text now.
        notice(sentence): something a person should know, not tied to a message.

    Thread: GUI thread.
    """

    ready = Signal()
    chat_opened = Signal(int)
    draft_restored = Signal(str)
    notice = Signal(str)

    def __init__(self, engine: Engine, store: Store, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.chats = ChatListModel(self)
        self.conversation = ConversationModel(self)
        self.generation = GenerationState(self)
        self.catalogue = ModelCatalogue(self)
        self._engine = engine
        self._store = store
        self._settings = settings
        self._board = StatusBoard(self.generation)
        self._replies = Replies()
        self._open: OpenChat | None = None
        self._reading_id: int | None = None
        self._next_id = 0
        self._load_path = ""
        self._good_path = ""
        self._new_draft = ""
        self._draft: str | None = None
        self._draft_timer = QTimer(self)
        self._draft_timer.setSingleShot(True)
        self._draft_timer.setInterval(DRAFT_MS)
        self._draft_timer.timeout.connect(self._on_draft_timer_timeout)

    def new_chat(self) -> None:
        """Show an empty chat; it is kept from its first message on."""
        self._keep_draft()
        self._reading_id = None
        self._open = None
        self._settings.last_chat = 0
        self._board.forget_chat(None)
        self.conversation.load(None, "", ())
        self._show_status()
        self.chat_opened.emit(-1)
        self.draft_restored.emit(self._new_draft)

    def open_chat(self, chat_id: int) -> None:
        """Show a chat, as soon as it is read."""
        self._keep_draft()
        self._reading_id = chat_id
        self._store.submit(records.OpenChat(chat_id))

    def send(self, text: str) -> None:
        """Add a person's message to the open chat and ask for a reply; what cannot be sent goes back to the composer."""
        if not text.strip():
            return
        refusal = self._refusal()
        if refusal:
            self.draft_restored.emit(text)
            self.notice.emit(refusal)
            return
        chat = self._open
        new: list[MessageRecord] = []
        if chat is None:
            chat = self._open = OpenChat(self._new_record(text), (), frozenset())
            if self._settings.system_prompt.strip():
                new.append(self._message(chat, None, "system", self._settings.system_prompt, is_pinned=True))
            self._new_draft = ""
        parent = new[-1] if new else chat.leaf
        new.append(self._message(chat, parent, "user", text))
        self._forget_draft()
        self._ask(chat, new)

    def regenerate(self) -> None:
        """Make the last reply of the open chat anew, beside the one that is there."""
        chat = self._open
        refusal = self._refusal()
        if chat is None or chat.leaf is None:
            return
        if refusal:
            self.notice.emit(refusal)
            return
        if chat.leaf.role == "assistant":
            chat.messages.pop()
            self.conversation.remove_from(len(chat.messages))
        self._ask(chat, [])

    def stop(self) -> None:
        """Stop the reply of the open chat, also one that waits for its turn."""
        reply = self._replies.live_in(self.conversation.chat_id)
        if reply is not None:
            reply.is_stopping = True
            self._engine.cancel(reply.job_id)
            self._show_status()

    def delete_chat(self, chat_id: int) -> None:
        """Move a chat to the bin; `undo_delete` brings it back."""
        reply = self._replies.live_in(chat_id)
        if reply is not None:
            self._engine.cancel(reply.job_id)
        if self.chats.remove(chat_id) is None:
            return
        self._engine.forget_chat(chat_id)
        if chat_id == self._reading_id or chat_id == self.conversation.chat_id:
            self._forget_draft()
            self.new_chat()
        self._store.submit(records.DeleteChat(chat_id))

    def undo_delete(self) -> None:
        """Bring back the chat deleted last and show it."""
        self._store.submit(records.UndoDelete())

    def rename_chat(self, chat_id: int, title: str) -> None:
        """Give a chat another title; an empty one changes nothing."""
        title = " ".join(title.split())
        row = self.chats.chat(chat_id)
        if row is None or not title or title == row.title:
            return
        self.chats.put(replace(row, title=title))
        self._store.submit(records.RenameChat(chat_id, title))
        if self._open is not None and self._open.chat.id == chat_id:
            self._open.chat = replace(self._open.chat, title=title)
            self.conversation.name(chat_id, title)

    def set_draft(self, text: str) -> None:
        """Keep what stands in the composer of the open chat, a moment after the last key."""
        self._draft = text
        self._draft_timer.start()

    def load_model(self, path: str) -> None:
        """Load a model in the background; the one before is let go."""
        self._load_path = path
        self._board.set_loading(model_name(Path(path)), 0.0)
        self._engine.load_model(path, self._settings.n_threads or None)
        self._show_status()

    def close(self) -> None:
        """Hand over what is not kept yet; storage is closed after this."""
        self._keep_draft()
        self._settings.last_chat = self.conversation.chat_id or 0
        self._settings.sync()

    def on_store_event(self, event: StoreEvent) -> None:
        """Take in what storage tells."""
        match event:
            case StoreOpened():
                self._on_opened(event)
            case ChatContent():
                if event.chat.id == self._reading_id:
                    self._show_chat(event)
            case records.ChatRestored():
                self.chats.put(_row(event.chat))
                self.open_chat(event.chat.id)
            case records.ReplySaved():
                self._replies.mark_saved(event.message_id)
            case records.StoreFailed():
                self.notice.emit(str(event.error))

    def on_engine_event(self, event: EngineEvent) -> None:
        """Take in what the engine tells."""
        match event:
            case ModelLoading():
                self._board.set_loading(model_name(Path(self._load_path)), event.fraction)
            case ModelLoaded():
                self._on_model_loaded(event.info)
            case JobFailed():
                self._on_load_failed(event)
            case ReplyStarted():
                self._on_reply_started(event)
            case PrefillProgress():
                self._board.prefill(event)
            case TextChunk():
                self._on_text(event)
            case ReplyFinished():
                self._on_reply_finished(event)
            case SessionNotSaved():
                self.notice.emit(
                    self.tr("The memory of a chat could not be saved ({0}): it will be computed again.").format(
                        event.reason
                    )
                )
        self._show_status()

    def on_models_found(self, found: ModelsFound) -> None:
        """Take in which models there are."""
        self.catalogue.set_entries(found.entries, found.free_bytes)

    def _ask(self, chat: OpenChat, new: list[MessageRecord]) -> None:
        """Keep new messages and ask for a reply to the last one of the branch."""
        chat.messages += new
        prompt = prompt_of(chat.messages)
        reply = replace(self._message(chat, chat.leaf, "assistant", ""), state="queued")
        chat.messages.append(reply)
        model = self._board.model
        chat.chat = replace(
            chat.chat,
            leaf_id=reply.id,
            used_at=time.time(),
            model_ref=model.path if model else self._load_path,
            draft="",
            is_unread=False,
        )
        chat_id = chat.chat.id
        self._store.submit(records.AddMessages(chat.chat, (*new, reply)))
        job_id = self._engine.generate(
            *(chat_id, reply.id, prompt, self._settings.sampling(), self._settings.n_predict),
            *(chat.chat.n_ctx, chat.out_ids, chat.began_at),
        )
        self._replies.add(Reply(job_id, reply))
        self._board.start(chat_id, self._n_ctx_new())
        is_first = self.conversation.chat_id is None
        self._reading_id = None
        self._settings.last_chat = chat_id
        self.conversation.name(chat_id, chat.chat.title)
        for message in (*new, reply):
            self.conversation.append(message_item(message, is_out=False))
        self.chats.put(replace(_row(chat.chat), is_generating=True))
        self._show_status()
        if is_first:
            self.chat_opened.emit(chat_id)

    def _refusal(self) -> str:
        """Return why nothing can be sent now; empty where it can."""
        if not self._next_id:
            return self.tr("Your chats are still being read.")
        if self._board.model is None and not self._board.is_loading:
            return self.tr("Choose a model first.")
        if self._replies.live_in(self.conversation.chat_id) is not None:
            return self.tr("The reply is still being made: stop it, or wait for its end.")
        return ""

    def _on_opened(self, event: StoreOpened) -> None:
        self._next_id = event.next_id
        self._new_draft = event.draft
        self.chats.set_rows(_row(chat) for chat in event.chats)
        if event.notice:
            self.notice.emit(event.notice)
        if self.chats.chat(self._settings.last_chat) is not None:
            self.open_chat(self._settings.last_chat)
        else:
            self.new_chat()
        self.ready.emit()

    def _show_chat(self, content: ChatContent) -> None:
        chat_id = content.chat.id
        self._reading_id = None
        messages = self._replies.overlay(content.messages)
        self._open = OpenChat(replace(content.chat, is_unread=False), messages, content.out_ids)
        self._board.open_chat(chat_id, content.n_used, content.n_ctx)
        self._settings.last_chat = chat_id
        self.conversation.load(chat_id, content.chat.title, self._open.items())
        row = self.chats.chat(chat_id)
        if row is not None and row.is_unread:
            self.chats.put(replace(row, is_unread=False))
            self._store.submit(records.MarkRead(chat_id, False))
        self._show_status()
        self.chat_opened.emit(chat_id)
        self.draft_restored.emit(content.chat.draft)

    def _on_model_loaded(self, info: ModelInfo) -> None:
        self._board.set_model(info)
        self._good_path = self._settings.last_model = info.path
        # Where one model lies there are others: the picker lists them from now on.
        folder = str(Path(info.path).parent)
        if folder not in self._settings.model_folders and folder != str(default_models_folder()):
            self._settings.model_folders = (*self._settings.model_folders, folder)

    def _on_load_failed(self, event: JobFailed) -> None:
        self._board.set_model(None, event.error.sentence)
        self.notice.emit(str(event.error))
        if self._good_path and self._good_path != self._load_path:
            self.load_model(self._good_path)

    def _on_reply_started(self, event: ReplyStarted) -> None:
        reply = self._replies.of_message(event.message_id)
        if reply is not None:
            reply.record = replace(reply.record, state="streaming")
            self._put_record(reply.record)

    def _on_text(self, event: TextChunk) -> None:
        reply = self._replies.of_message(event.message_id)
        if reply is not None:
            reply.take_text(event)
            self._board.text(event)
            if event.chat_id == self.conversation.chat_id:
                self.conversation.append_text(event.message_id, event.text)

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        reply = self._replies.finish(event)
        if reply is None:
            return
        self._board.finish(event, event.note or self._end_note(event))
        is_shown = self._open is not None and self._open.chat.id == event.chat_id
        if self._open is not None and is_shown:
            # A reply that never reached the model tells nothing of the context.
            if event.model_fp:
                self._open.out_ids = event.out_ids
                self.conversation.mark_out(event.out_ids)
            self._put_record(reply.record)
        row = self.chats.chat(event.chat_id)
        if row is not None:
            self.chats.put(replace(row, is_generating=False, is_unread=not is_shown))
            if not is_shown:
                self._store.submit(records.MarkRead(event.chat_id, True))

    def _end_note(self, event: ReplyFinished) -> str:
        if event.finish == "context":
            return self.tr("The context is full, and nothing in it may leave: the reply ends here.")
        if event.finish == "length":
            return self.tr("The reply has reached the longest length that the settings allow.")
        return ""

    def _put_record(self, record: MessageRecord) -> None:
        if self._open is not None and self._open.chat.id == record.chat_id:
            self._open.put(record)
            self.conversation.put(message_item(record, record.id in self._open.out_ids))

    def _show_status(self) -> None:
        chat_id = self.conversation.chat_id
        waiting = self.tr("Waits for the reply in another chat.")
        self._board.show(chat_id, self._replies.live_in(chat_id), self._n_ctx_new(), waiting)

    def _n_ctx_new(self) -> int:
        model = self._board.model
        return self._settings.n_ctx or (min(model.n_ctx_train, N_CTX_DEFAULT) if model else 0)

    def _new_record(self, text: str) -> ChatRecord:
        frozen = {"system_prompt": self._settings.system_prompt, "began_at": time.strftime("%Y-%m-%dT%H:%M:%S")}
        now = time.time()
        return ChatRecord(self._take_id(), title_of(text), now, frozen=json.dumps(frozen), n_ctx=self._settings.n_ctx)

    def _message(
        self, chat: OpenChat, parent: MessageRecord | None, role: Role, text: str, is_pinned: bool = False
    ) -> MessageRecord:
        parent_id = parent.id if parent else None
        return MessageRecord(self._take_id(), chat.chat.id, parent_id, role, text, is_pinned=is_pinned)

    def _take_id(self) -> int:
        taken = self._next_id
        self._next_id += 1
        return taken

    def _on_draft_timer_timeout(self) -> None:
        self._keep_draft()

    def _keep_draft(self) -> None:
        """Hand the draft to storage where it has changed."""
        self._draft_timer.stop()
        if self._draft is None:
            return
        text, self._draft = self._draft, None
        chat_id = self.conversation.chat_id
        if chat_id is None:
            self._new_draft = text
        self._store.submit(records.SetDraft(chat_id, text))

    def _forget_draft(self) -> None:
        """Note that the composer is empty."""
        self._draft = ""
        self._keep_draft()


def _row(chat: ChatRecord) -> ChatRow:
    return ChatRow(chat.id, chat.title, chat.used_at, is_unread=chat.is_unread, is_pinned=chat.is_pinned)
