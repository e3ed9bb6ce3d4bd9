"""What the actions of the window call: new chat, send, stop and the rest; nothing here waits."""

from __future__ import annotations

import time
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.bridge.context_view import ContextView, CostKnown
from app.bridge.messages import (
    EngineEvent,
    EstimateCost,
    JobFailed,
    ModelLoaded,
    ModelLoading,
    ModelsFound,
    PrefillProgress,
    ReplyFinished,
    ReplyStarted,
    SessionNotSaved,
    TextChunk,
)
from app.models.bin import Bin
from app.models.catalogue import ModelCatalogue
from app.models.chat_list import ChatListModel, ChatRow
from app.models.context_rules import ContextRules
from app.models.conversation import ConversationModel
from app.models.cost import CostEstimate
from app.models.drafts import Drafts
from app.models.exchange import Exchange
from app.models.generation import GenerationState
from app.models.model_loader import ModelLoader
from app.models.open_chat import OpenChat, message_item, prompt_of
from app.models.ports import Engine, Store
from app.models.record_maker import RecordMaker
from app.models.replay import Replays, as_asked, asked_for
from app.models.replies import Replies, Reply, end_note
from app.models.session_files import SessionFilesModel
from app.models.status import StatusBoard
from app.models.summaries import Summaries, is_summary
from app.settings import Settings
from app.storage import records
from app.storage.records import ChatContent, MessageRecord, StoreEvent, StoreOpened


class ChatController(QObject):
    """Turns what a person does, and what the engine and storage tell, into changes of the state objects.

    Attributes:
        chats: the list of chats.
        conversation: the open chat.
        generation: what the model does for the open chat.
        catalogue: the models that were found.
        session_files: the files of chats' memories.
        rules: what stays in the context.
        bin: what was deleted.
        exchange: chats to files and from files.

    Signals:
        ready: the chats were read and the last one is open or being opened.
        chat_opened(chat_id): another chat is shown; -1 for a new one without messages.
        draft_restored(text): the composer should hold this text now.
        notice(sentence): something a person should know, not tied to a message.
        overflow_asked: the context of the open chat is full, and nothing leaves it unless a person says so.

    Thread: GUI thread.
    """

    ready = Signal()
    chat_opened = Signal(int)
    draft_restored = Signal(str)
    notice = Signal(str)
    overflow_asked = Signal()

    def __init__(self, engine: Engine, store: Store, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.chats, self.conversation = ChatListModel(self), ConversationModel(self)
        self.generation, self.catalogue = GenerationState(self), ModelCatalogue(self)
        self._engine, self._store, self._settings = engine, store, settings
        self._board = StatusBoard(self.generation)
        self._replies, self._replays = Replies(), Replays()
        self._make = RecordMaker(settings)
        self.session_files = SessionFilesModel(store, self)
        self._open: OpenChat | None = None
        self._reading_id: int | None = None
        self._is_readonly = self._is_temporary = False
        self._models = ModelLoader(engine, settings, self._board)
        self.bin = Bin(store, self)
        self.exchange = Exchange(store, self._make, self.chats, self)
        self.rules = ContextRules(engine, store, settings, self.conversation, self._make, self._open_now, self)
        self._summaries = Summaries(engine, settings, self.rules.add_summary)
        self._drafts = Drafts(store, self)
        self._cost = CostEstimate(engine, self._cost_question, self)
        self._cost.changed.connect(self._show_status)

    def new_temporary_chat(self) -> None:
        """Show an empty chat of which nothing will be written; it is gone when another one is opened."""
        self.new_chat()
        self._is_temporary, self._drafts.is_kept = True, False
        self.notice.emit(self.tr("Nothing of this chat is written: it is gone when you leave it."))

    def new_chat(self) -> None:
        """Show an empty chat; it is kept from its first message on."""
        self._leave_temporary()
        self._drafts.chat_id = None
        self._reading_id = None
        self._open = None
        self._settings.last_chat = 0
        self._board.forget_chat(None)
        self.conversation.load(None, "", ())
        self._show_status()
        self.chat_opened.emit(-1)
        self.draft_restored.emit(self._drafts.of_new_chat)

    def open_chat(self, chat_id: int) -> None:
        """Show a chat, as soon as it is read."""
        self._leave_temporary()
        self._reading_id = chat_id
        self._store.submit(records.OpenChat(chat_id))

    def send(self, text: str) -> None:
        """Add a person's message to the open chat and ask for a reply; what cannot be sent goes back to the composer."""
        if not text.strip() or not self._may_ask(text):
            return
        chat = self._open
        new: list[MessageRecord] = []
        if chat is None:
            chat = self._open = OpenChat(self._make.chat(text), (), frozenset())
            chat.is_temporary, self._is_temporary = self._is_temporary, False
            new += [replace(message, id=self._make.take_ids()) for message in self._make.opening(chat)]
        parent = new[-1] if new else chat.leaf
        new.append(self._make.message(chat, parent, "user", text))
        self._drafts.forget()
        self._ask(chat, new)

    def edit(self, message_id: int, text: str) -> None:
        """Send another version of a person's message; the one before stays beside it, with its replies."""
        chat = self._open
        old = chat.message(message_id) if chat is not None else None
        if chat is None or old is None or not text.strip() or not self._may_ask(text):
            return
        self._cut(chat, old)
        self._drafts.forget()
        self._ask(chat, [self._make.version(chat, old, text)])

    def regenerate(self) -> None:
        """Make the last reply of the open chat anew, beside the one that is there."""
        messages = self._open.messages if self._open is not None else []
        last = next((m for m in reversed(messages) if not is_summary(m)), None)
        if last is not None:
            self.regenerate_reply(last.id)

    def regenerate_reply(self, message_id: int) -> None:
        """Make a reply anew, beside the one that is there; for a message without a reply, make that."""
        chat = self._open
        old = chat.message(message_id) if chat is not None else None
        if chat is None or old is None or not self._may_ask():
            return
        if old.role != "assistant":
            self._ask(chat, [])
            return
        self._cut(chat, old)
        self._ask(chat, [], self._make.version(chat, old, ""))

    def replay(self, message_id: int) -> None:
        """Make a reply again just as it was made, beside the one that is there; the status line says what came of it."""
        old = self._open.message(message_id) if self._open is not None else None
        if old is not None and asked_for(old.record) is None:
            self.notice.emit(self.tr("How this reply was made is not known."))
        elif self._open is not None and old is not None and self._may_ask():
            self._cut(self._open, old)
            new = self._make.version(self._open, old, "")
            self._replays.add(new.id, old)
            self._ask(self._open, [], new, like=old)

    def step_version(self, message_id: int, step: int) -> None:
        """Show the branch through the version that is `step` places behind a message's."""
        chat = self._open
        old = chat.message(message_id) if chat is not None else None
        if chat is None or old is None or old.id not in old.siblings or chat.is_temporary:
            return
        i = old.siblings.index(old.id) + step
        if 0 <= i < len(old.siblings):
            self._reading_id = chat.chat.id
            self._store.submit(records.ShowBranch(chat.chat.id, old.siblings[i]))

    def fork(self, message_id: int) -> None:
        """Make a chat of the branch up to a message and show it; the open chat stays as it is."""
        chat = self._open
        n = chat.index_of(message_id) + 1 if chat is not None else 0
        if chat is None or n == 0 or self._is_readonly or chat.is_temporary:
            return
        self._drafts.keep()
        record, first_id = self._make.fork(chat.chat, n, self.tr("{title} (fork)").format(title=chat.chat.title))
        self.chats.put(ChatRow.of(record))
        self._reading_id = record.id
        self._store.submit(records.ForkChat(record, message_id, first_id))

    def let_leave(self) -> None:
        """Let the oldest messages of a full context leave, and make the reply that found no room."""
        self.rules.set_overflow("shift")
        leaf = self._open.leaf if self._open is not None else None
        if leaf is not None and leaf.role == "assistant" and not leaf.text:
            self.regenerate_reply(leaf.id)

    def delete_message(self, message_id: int) -> None:
        """Move a message and all that follows it to the bin; `bin.undo` brings them back."""
        chat = self._open
        if chat is None or chat.message(message_id) is None or chat.is_temporary:
            return
        reply = self._replies.live_in(chat.chat.id)
        if reply is not None:
            self._engine.cancel(reply.job_id)
        self._reading_id = chat.chat.id
        self._store.submit(records.DeleteMessage(chat.chat.id, message_id))
        self.bin.add()

    def stop(self) -> None:
        """Stop the reply of the open chat, also one that waits for its turn."""
        reply = self._replies.live_in(self.conversation.chat_id)
        if reply is not None:
            reply.is_stopping = True
            self._engine.cancel(reply.job_id)
            self._show_status()

    def delete_chat(self, chat_id: int) -> None:
        """Move a chat to the bin; `bin.undo` brings it back."""
        reply = self._replies.live_in(chat_id)
        if reply is not None:
            self._engine.cancel(reply.job_id)
        if self.chats.remove(chat_id) is None:
            return
        self._engine.forget_chat(chat_id)
        if chat_id == self._reading_id or chat_id == self.conversation.chat_id:
            self._drafts.forget()
            self.new_chat()
        self._store.submit(records.DeleteChat(chat_id))
        self.bin.add()

    def search(self, text: str) -> None:
        """Look for chats that have a message with all words of a text; the list of chats shows them."""
        self._store.submit(records.SearchChats(text))

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
        self._drafts.set(text)
        self._cost.set_draft(text)

    def load_model(self, path: str) -> None:
        """Load a model in the background; the one before is let go."""
        self._models.load(path)
        self._show_status()

    def close(self) -> None:
        """Hand over what is not kept yet; storage is closed after this."""
        self._drafts.keep()
        if self._open is not None and not self._open.is_temporary:
            self._settings.last_chat = self._open.chat.id
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
                self.chats.put(ChatRow.of(event.chat))
                self.open_chat(event.chat.id)
            case records.ChatsFound():
                self.chats.set_found(event.text, event.chat_ids)
            case records.SessionsListed():
                self.session_files.take(event)
            case records.TreesRead() | records.TreesKept():
                self.exchange.on_store_event(event)
            case records.ReplySaved():
                self._replies.mark_saved(event.message_id)
            case records.StoreFailed():
                self.notice.emit(str(event.error))

    def on_engine_event(self, event: EngineEvent) -> None:
        """Take in what the engine tells."""
        if self._summaries.take(event):
            return
        match event:
            case ModelLoading():
                self._models.on_loading(event)
            case ModelLoaded():
                self._models.on_loaded(event.info)
            case JobFailed():
                self.notice.emit(str(event.error))
                self._models.on_failed(event)
            case ReplyStarted():
                self._on_reply_started(event)
            case PrefillProgress():
                self._board.prefill(event)
            case TextChunk():
                self._on_text(event)
            case ReplyFinished():
                self._on_reply_finished(event)
            case CostKnown():
                self._cost.take(event)
            case ContextView():
                self.rules.inspected.emit(event)
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

    def _ask(
        self,
        chat: OpenChat,
        new: list[MessageRecord],
        reply: MessageRecord | None = None,
        like: MessageRecord | None = None,
    ) -> None:
        """Keep new messages and ask for a reply to the last one of the branch; `reply` is the message for it."""
        chat.messages += new
        prompt = prompt_of(chat.messages)
        reply = replace(reply or self._make.message(chat, chat.leaf, "assistant", ""), state="queued")
        chat.messages.append(reply)
        model = self._board.model
        chat.chat = replace(
            chat.chat,
            leaf_id=reply.id,
            used_at=time.time(),
            model_ref=model.path if model else self._models.path,
            draft="",
            is_unread=False,
        )
        chat_id = chat.chat.id
        if not chat.is_temporary:
            self._store.submit(records.AddMessages(chat.chat, (*new, reply)))
        job_id = self._engine.generate(
            *(chat_id, reply.id, prompt, *as_asked(self._settings.sampling(), self._settings.n_predict, like)),
            *(chat.chat.n_ctx, chat.out_ids, chat.began_at, chat.is_temporary, chat.chat.overflow),
        )
        self._replies.add(Reply(job_id, reply))
        self._board.start(chat_id, self._board.n_ctx_of_new(self._settings.n_ctx))
        is_first = self.conversation.chat_id is None
        self._reading_id = None
        self._drafts.chat_id = chat_id
        self._settings.last_chat = 0 if chat.is_temporary else chat_id
        self.conversation.name(chat_id, chat.chat.title)
        for message in (*new, reply):
            self.conversation.append(message_item(message, is_out=False))
        if not chat.is_temporary:
            self.chats.put(replace(ChatRow.of(chat.chat), is_generating=True))
        self._show_status()
        if is_first:
            self.chat_opened.emit(chat_id)

    def _cut(self, chat: OpenChat, old: MessageRecord) -> None:
        """Take a message and what follows it off the branch that is shown."""
        i = chat.index_of(old.id)
        del chat.messages[i:]
        self.conversation.remove_from(i)

    def _may_ask(self, text: str = "") -> bool:
        """Whether a reply can be asked for now; where not, says why and gives the text back to the composer."""
        refusal = self._refusal()
        if refusal:
            if text:
                self.draft_restored.emit(text)
            self.notice.emit(refusal)
        return not refusal

    def _refusal(self) -> str:
        """Return why nothing can be sent now; empty where it can."""
        if not self._make.next_id:
            return self.tr("Your chats are still being read.")
        if self._is_readonly:
            return self.tr("These chats were written by a later version of Causerie: they can be read, not changed.")
        if self._board.model is None and not self._board.is_loading:
            return self.tr("Choose a model first.")
        if self._replies.live_in(self.conversation.chat_id) is not None:
            return self.tr("The reply is still being made: stop it, or wait for its end.")
        return ""

    def _on_opened(self, event: StoreOpened) -> None:
        self._make.next_id = event.next_id
        self._drafts.of_new_chat = event.draft
        self._is_readonly = event.is_readonly
        self.bin.add(event.n_undo)
        self.session_files.set_budget(self._settings.disk_budget_mb)
        self.chats.set_rows(ChatRow.of(chat) for chat in event.chats)
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
        self._settings.last_chat = self._drafts.chat_id = chat_id
        self.conversation.load(chat_id, content.chat.title, self._open.items())
        row = self.chats.chat(chat_id)
        if row is not None and row.is_unread:
            self.chats.put(replace(row, is_unread=False))
            self._store.submit(records.MarkRead(chat_id, False))
        self._show_status()
        self.chat_opened.emit(chat_id)
        self.draft_restored.emit(content.chat.draft)
        if messages:
            self._engine.restore_chat(chat_id, content.chat.n_ctx)

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
        self._cost.measure(event)
        self._board.finish(event, event.note or self._replays.verdict(reply.record) or end_note(event))
        is_shown = self._open is not None and self._open.chat.id == event.chat_id
        if self._open is not None and is_shown:
            # A reply that never reached the model tells nothing of the context.
            if event.model_fp:
                left_ids, self._open.out_ids = event.out_ids - self._open.out_ids, event.out_ids
                if self._open.chat.overflow == "summarise":
                    self._summaries.ask(self._open, left_ids, self._make.take_ids())
                self.conversation.mark_out(event.out_ids)
            self._put_record(reply.record)
            if event.finish == "context" and self._open.chat.overflow == "stop":
                self.overflow_asked.emit()
        row = self.chats.chat(event.chat_id)
        if row is not None:
            self.chats.put(replace(row, is_generating=False, is_unread=not is_shown))
            if not is_shown:
                self._store.submit(records.MarkRead(event.chat_id, True))

    def _put_record(self, record: MessageRecord) -> None:
        if self._open is not None and self._open.chat.id == record.chat_id:
            self._open.put(record)
            self.conversation.put(message_item(record, record.id in self._open.out_ids))

    def _show_status(self) -> None:
        chat_id = self.conversation.chat_id
        waiting = self.tr("Waits for the reply in another chat.")
        self._board.show(
            chat_id, self._replies.live_in(chat_id), self._board.n_ctx_of_new(self._settings.n_ctx), waiting, self._cost
        )

    def _leave_temporary(self) -> None:
        chat = self._open
        self._drafts.keep()
        self._is_temporary, self._drafts.is_kept = False, True
        if chat is not None and chat.is_temporary:
            self.stop()
            self._engine.forget_chat(chat.chat.id)
            self._open = None
            self._drafts.chat_id = None

    def _cost_question(self, text: str) -> EstimateCost | None:
        if self._board.model is None or self._replies.live_in(self.conversation.chat_id) is not None:
            return None
        return self._make.cost_question(self._open, text)

    def _open_now(self) -> OpenChat | None:
        return self._open
