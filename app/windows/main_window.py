"""The window: arranges the widgets, connects them with the controller, and carries out the actions.

Widgets show the state objects by themselves; here is only what lies between them.
"""

from __future__ import annotations

from operator import attrgetter

from PySide6.QtCore import QByteArray, QSize, Qt, QUrl, Signal
from PySide6.QtGui import QCloseEvent, QDesktopServices, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QMenu, QStackedLayout, QVBoxLayout, QWidget

from app.actions import Actions, When
from app.icons import app_icon
from app.models import ChatController, Phase
from app.settings import Settings
from app.theme import COLUMN_WIDTH, GRID, Theme, ThemeMode
from app.widgets.chat_header import ChatHeader
from app.widgets.composer import BUSY, Composer
from app.widgets.conversation import ConversationView
from app.widgets.empty_state import EmptyState
from app.widgets.find_bar import FindBar
from app.widgets.model_picker import ModelPicker
from app.widgets.notice_bar import NoticeBar
from app.widgets.sidebar import Sidebar
from app.widgets.status_line import StatusLine
from app.windows.chat_commands import UNDO, ChatCommands
from app.windows.chat_files import REPORT, ChatFiles
from app.windows.dialogs import Dialogs
from app.windows.model_details import ModelDetailsWindow

_OPENED_SCHEMES = ("http", "https", "mailto")
_LINK = "link:"


class MainWindow(QWidget):
    """List of chats at the left, conversation and composer in the middle.

    Attributes:
        controller, theme, commands, dialogs, files, find_bar: what actions of the table call beside the window itself.

    Signals:
        fetch_wanted: get more models.

    Thread: GUI thread.
    """

    fetch_wanted = Signal()

    def __init__(self, controller: ChatController, settings: Settings, theme: Theme) -> None:
        super().__init__()
        self.setObjectName("main_window")
        self.setWindowIcon(app_icon())
        self.setMinimumSize(QSize(480, 400))
        self.controller = controller
        self._settings = settings
        self.theme = theme
        self._picker: ModelPicker | None = None
        self._sidebar = Sidebar(controller.chats, theme, self)
        self._side_line = QWidget(self)
        self._side_line.setObjectName("side_line")
        self._side_line.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._side_line.setFixedWidth(1)
        self._view = ConversationView(controller.conversation, theme, self)
        self.find_bar = FindBar(self._view, theme, self)
        self._empty = EmptyState(controller.generation, self)
        self._composer = Composer(controller.generation, theme, self)
        self._status = StatusLine(controller.generation, self)
        self._notice = NoticeBar(theme, self._composer, self)
        self.dialogs = Dialogs(controller, settings, self._notice, self)
        self.commands = ChatCommands(controller, self._view, self._composer, self._notice, self)
        self.files = ChatFiles(controller, self._notice, self)
        self._actions = Actions(self)
        menu = QMenu(self)
        self._actions.fill_all(menu)
        self._header = ChatHeader(theme, menu, self)
        self._arrange()
        self._connect()
        self._restore()
        self._on_conversation_changed()
        self._composer.setFocus()

    def _arrange(self) -> None:
        self._stack = QStackedLayout()
        self._stack.addWidget(self._empty)
        self._stack.addWidget(self._view)
        bottom = QVBoxLayout()
        bottom.setContentsMargins(3 * GRID, 4, 3 * GRID, 12)
        bottom.setSpacing(GRID)
        for widget in (self._composer, self._status):
            widget.setMaximumWidth(COLUMN_WIDTH)
            row = QHBoxLayout()
            row.addStretch(0)
            row.addWidget(widget, 1000)
            row.addStretch(0)
            bottom.addLayout(row)
        middle = QVBoxLayout()
        middle.setSpacing(0)
        middle.addWidget(self._header)
        middle.addWidget(self.find_bar)
        middle.addLayout(self._stack, 1)
        middle.addLayout(bottom)
        columns = QHBoxLayout(self)
        columns.setContentsMargins(0, 0, 0, 0)
        columns.setSpacing(0)
        columns.addWidget(self._sidebar)
        columns.addWidget(self._side_line)
        columns.addLayout(middle, 1)

    def _connect(self) -> None:
        controller, conversation = self.controller, self.controller.conversation
        self._actions.triggered.connect(self._on_action_triggered)
        self._sidebar.new_chat_requested.connect(self.new_chat)
        self._sidebar.hide_requested.connect(self.toggle_sidebar)
        self._sidebar.search_left.connect(self._composer.setFocus)
        self._sidebar.search_changed.connect(controller.search)
        self._sidebar.chat_list.chat_chosen.connect(controller.open_chat)
        self._sidebar.chat_list.rename_requested.connect(controller.rename_chat)
        self._sidebar.chat_list.delete_requested.connect(self.commands.delete_chat)
        self._header.sidebar_requested.connect(self.toggle_sidebar)
        self._header.new_chat_requested.connect(self.new_chat)
        self._empty.pick_requested.connect(self.pick_model)
        self._empty.open_requested.connect(self.open_model)
        self._composer.submitted.connect(self._on_submitted)
        self._composer.stop_requested.connect(controller.stop)
        self._composer.text_changed.connect(controller.set_draft)
        self._composer.model_requested.connect(self.pick_model)
        self._composer.context_requested.connect(self.dialogs.show_context)
        self.find_bar.closed.connect(self._composer.setFocus)
        self._view.link_clicked.connect(self._on_link_clicked)
        self._notice.accepted.connect(self._on_notice_accepted)
        controller.chat_opened.connect(self._on_chat_opened)
        controller.draft_restored.connect(self._composer.set_text)
        controller.notice.connect(self._notice.say)
        controller.bin.changed.connect(self._update_actions)
        controller.rules.changed.connect(self._update_actions)
        self.theme.changed.connect(self._on_theme_changed)
        controller.generation.changed.connect(self._update_actions)
        conversation.reset.connect(self._on_conversation_changed)
        conversation.item_inserted.connect(self._on_conversation_changed)
        conversation.items_removed.connect(self._on_conversation_changed)
        conversation.title_changed.connect(self._on_conversation_changed)

    # Actions: the names stand in app.actions

    def new_chat(self) -> None:
        """Show an empty chat."""
        self.controller.new_chat()
        self._composer.setFocus()

    def search_chats(self) -> None:
        """Put the keyboard into the search field."""
        self._set_sidebar_visible(True)
        self._sidebar.focus_search()

    def rename_chat(self) -> None:
        """Let a person edit the title of the open chat."""
        chat_id = self.controller.conversation.chat_id
        if chat_id is not None:
            self._set_sidebar_visible(True)
            self._sidebar.chat_list.begin_rename(chat_id)

    def delete_chat(self) -> None:
        """Delete the open chat; a notice offers to bring it back."""
        chat_id = self.controller.conversation.chat_id
        if chat_id is not None:
            self.commands.delete_chat(chat_id)

    def copy_last_reply(self) -> None:
        """Copy the last reply."""
        self._view.copy_last_reply()
        self._notice.show_notice(self.tr("The last reply was copied."))

    def copy_last_code(self) -> None:
        """Copy the last code block of the last reply."""
        if self._view.copy_last_code():
            self._notice.show_notice(self.tr("The last code block was copied."))
        else:
            self._notice.show_notice(self.tr("The last reply has no code block."))

    def pick_model(self) -> None:
        """Show the models found."""
        self._model_picker().open()

    def open_model(self) -> None:
        """Ask for a model file."""
        self._model_picker().choose_file()

    def toggle_sidebar(self) -> None:
        """Show or hide the list of chats."""
        self._set_sidebar_visible(self._sidebar.isHidden())

    # What the parts say

    def _on_action_triggered(self, slot: str) -> None:
        attrgetter(slot)(self)()

    def _on_submitted(self, text: str) -> None:
        if self.controller.generation.phase == Phase.NO_MODEL:
            self.pick_model()
            return
        self.commands.submit(text)

    def _on_chat_opened(self, chat_id: int) -> None:
        if self._notice.key not in (UNDO, REPORT):
            self._notice.hide()
        self._composer.setFocus()

    def _on_conversation_changed(self) -> None:
        conversation = self.controller.conversation
        self._stack.setCurrentWidget(self._view if conversation.items() else self._empty)
        self._header.set_title(conversation.title)
        title = self.tr("{title} – Causerie").format(title=conversation.title)
        self.setWindowTitle(title if conversation.title else "Causerie")
        self._sidebar.chat_list.set_open_chat(-1 if conversation.chat_id is None else conversation.chat_id)
        self._update_actions()

    def _on_link_clicked(self, url: str) -> None:
        target = QUrl(url)
        shown = bytes(target.toEncoded().data()).decode("ascii", "replace")
        if target.scheme().lower() in _OPENED_SCHEMES:
            self._notice.show_notice(shown, self.tr("Open this address"), _LINK + url, stays=True)
            self._notice.focus_button()
        else:
            self._notice.show_notice(self.tr("This is not a web address and is not opened: {url}").format(url=shown))

    def _on_notice_accepted(self, key: str) -> None:
        if key.startswith(_LINK):
            QDesktopServices.openUrl(QUrl(key.removeprefix(_LINK)))
            self._composer.setFocus()

    def _show_model_details(self, path: str) -> None:
        window = ModelDetailsWindow(self.controller.catalogue, path, self._model_picker())
        window.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        window.open()

    def _model_picker(self) -> ModelPicker:
        if self._picker is None:
            self._picker = ModelPicker(self.controller.catalogue, self.theme, self)
            self._picker.chosen.connect(self.controller.load_model)
            self._picker.details_wanted.connect(self._show_model_details)
            self._picker.fetch_wanted.connect(self.fetch_wanted)
        return self._picker

    def _on_theme_changed(self) -> None:
        self._settings.theme = self.theme.mode.value
        self._settings.zoom = round(100 * self.theme.zoom)
        self._update_actions()

    def _set_sidebar_visible(self, is_visible: bool) -> None:
        for widget in (self._sidebar, self._side_line):
            widget.setVisible(is_visible)
        self._header.set_sidebar_visible(is_visible)
        self._settings.is_sidebar_visible = is_visible
        self._actions.action("sidebar").setChecked(is_visible)
        if self.isVisible() and not self.focusWidget():
            self._composer.setFocus()

    def _update_actions(self) -> None:
        conversation, phase = self.controller.conversation, self.controller.generation.phase
        holds = When.BUSY if phase in BUSY else When.IDLE
        if conversation.chat_id is not None:
            holds |= When.CHAT_OPEN
        if any(item.role == "assistant" for item in reversed(conversation.items())):
            holds |= When.REPLY_EXISTS
        if phase not in (Phase.NO_MODEL, Phase.LOADING):
            holds |= When.MODEL_READY
        if self.controller.bin.n:
            holds |= When.DELETED
        self._actions.update_enabled(holds)
        for overflow in ("shift", "stop", "summarise"):
            self._actions.action(f"overflow_{overflow}").setChecked(self.controller.rules.overflow == overflow)
        for mode in ThemeMode:
            self._actions.action(f"theme_{mode.value}").setChecked(mode == self.theme.mode)

    def _restore(self) -> None:
        self._set_sidebar_visible(self._settings.is_sidebar_visible)
        geometry = self._settings.window_geometry
        if not (geometry and self.restoreGeometry(QByteArray(geometry))):
            self.resize(1160, 780)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the composer in proportion."""
        super().resizeEvent(event)
        self._composer.fit()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Remember size and place."""
        self._settings.window_geometry = bytes(self.saveGeometry().data())
        super().closeEvent(event)
