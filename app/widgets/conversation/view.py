"""The conversation as a person uses it: marks and copies text, follows links, acts on messages."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, Qt, Signal
from PySide6.QtGui import (
    QAction,
    QContextMenuEvent,
    QFocusEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QApplication, QMenu, QWidget

from app.models import ConversationModel, MessageItem
from app.theme import GRID, Theme
from app.widgets.conversation.conversation_layout import Place
from app.widgets.conversation.message_actions import MessageActions
from app.widgets.conversation.message_layout import code_of, last_code, links_of
from app.widgets.conversation.painted_view import PaintedConversation, make_timer
from app.widgets.conversation.pointer import Hit
from app.widgets.conversation.selection import Spot, selected_text

_DRAG_MS = 33
_COPIED_MS = 1500
_DRAG_PX = 60  # the fastest step of scrolling while marking
_MENU_LINKS = 12


class ConversationView(PaintedConversation):
    """Shows a `ConversationModel` and lets a person act on it.

    Signals:
        link_clicked(url): a person wants to go there; nothing was opened.
        version_requested(message_id, step), edit_requested(message_id), regenerate_requested(message_id),
        fork_requested(message_id), delete_requested(message_id), pin_requested(message_id, is_pinned),
        return_requested(message_id): an action of a message was chosen.

    Thread: GUI thread.
    """

    link_clicked = Signal(str)
    version_requested = Signal(int, int)
    edit_requested = Signal(int)
    regenerate_requested = Signal(int)
    fork_requested = Signal(int)
    delete_requested = Signal(int)
    pin_requested = Signal(int, bool)
    return_requested = Signal(int)

    def __init__(self, conversation: ConversationModel, theme: Theme, parent: QWidget | None = None) -> None:
        self._actions: MessageActions | None = None
        super().__init__(conversation, theme, parent)
        self.setObjectName("conversation_view")
        self.setAccessibleName(self.tr("Conversation"))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setMouseTracking(True)
        self._hovered = -1
        self._pressed: Hit | None = None
        self._drag_pos = QPointF()
        self._drag_timer = make_timer(self, _DRAG_MS, is_single=False)
        # While it runs, one more click is the third.
        self._click_timer = make_timer(self, QApplication.doubleClickInterval(), is_single=True)
        self._copied_timer = make_timer(self, _COPIED_MS, is_single=True)
        self._actions = MessageActions(theme, self.viewport())
        self._drag_timer.timeout.connect(self._on_drag_due)
        self._copied_timer.timeout.connect(self._on_copied_over)
        self._actions.copy_requested.connect(self._on_copy_requested)
        self._actions.version_requested.connect(self.version_requested)
        self._actions.edit_requested.connect(self.edit_requested)
        self._actions.regenerate_requested.connect(self.regenerate_requested)
        self._actions.fork_requested.connect(self.fork_requested)
        self._actions.delete_requested.connect(self.delete_requested)
        self._actions.pin_requested.connect(self.pin_requested)
        self._actions.return_requested.connect(self.return_requested)
        self._on_reset()

    def copy_selection(self) -> None:
        """Copy what is marked."""
        selection = self._pointer.selection
        if selection is not None and not selection.is_empty:
            QGuiApplication.clipboard().setText(selected_text(self._layout, selection))

    def copy_last_reply(self) -> None:
        """Copy the text of the last reply as it was written."""
        i = self._last_reply()
        if i >= 0:
            QGuiApplication.clipboard().setText(self._conversation.items()[i].text)

    def copy_last_code(self) -> bool:
        """Copy the last code of the last reply; False where there is none."""
        self._take_in()
        i = self._last_reply()
        code = last_code(self._layout.message(i)) if i >= 0 else None
        if code is not None:
            QGuiApplication.clipboard().setText(code)
        return code is not None

    def acted_on(self) -> MessageItem | None:
        """Return the message that the pointer or the keyboard is on."""
        i = self._acting()
        return self._conversation.items()[i] if i >= 0 else None

    def select_all(self) -> None:
        """Mark the whole conversation."""
        self._take_in()
        self._pointer.select_all()
        self.viewport().update()

    def find_text(self, text: str) -> bool:
        """Look for a text from what is marked on, else from the window's top; "" ends the search.

        Returns: whether it is there; its places are shown, the one found is marked.
        """
        self._take_in()
        self._finder.needle = text
        self.viewport().update()
        return self._find_from(is_forward=True)

    def find_step(self, step: int) -> bool:
        """Go to the next place of the text that is looked for (1), or to the one before (-1)."""
        self._take_in()
        return self._find_from(is_forward=step > 0, is_step=True)

    def _find_from(self, *, is_forward: bool, is_step: bool = False) -> bool:
        if not self._finder.needle or not self._layout.n_messages:
            return False
        selection = self._pointer.selection
        if selection is None:
            start = Spot(self._position.first_place, 0)
        else:
            start = selection.last if is_forward and is_step else selection.first
        place = self._layout.clamped(start.place)
        found = self._finder.step(Spot(place, start.char), is_forward=is_forward)
        if found is not None:
            self._pointer.selection = found
            self._position.go_to_spot(found.first.place, found.first.char)
            self._place()
        return found is not None

    def _last_reply(self) -> int:
        items = self._conversation.items()
        return next((i for i in reversed(range(len(items))) if items[i].role == "assistant"), -1)

    # The actions of one message

    def _on_reset(self) -> None:
        self._hovered = self._focused = -1
        super()._on_reset()

    def _on_items_removed(self, first: int, count: int) -> None:
        self._hovered = self._focused = -1
        super()._on_items_removed(first, count)

    def _place(self) -> None:
        super()._place()
        self._place_actions()

    def _hover(self, i: int) -> None:
        if i != self._hovered:
            self._hovered = i
            self._place_actions()

    def _acting(self) -> int:
        """Return the message that actions are shown for, -1 for none."""
        i = self._hovered if self._hovered >= 0 else self._focused
        return i if i < len(self._conversation.items()) else -1

    def _place_actions(self) -> None:
        if self._actions is None:
            return
        items = self._conversation.items()
        i = self._acting()
        if i < 0 or items[i].state in ("streaming", "queued"):
            self._actions.hide()
            return
        self._actions.show_for(items[i])
        footer = self._geometry.footer(i).toRect()
        is_right = self._layout.message(i).is_bubble
        x = footer.right() - self._actions.width() if is_right else footer.left() - GRID // 2
        self._actions.move(x, footer.top() + 2)
        self._actions.show()

    def _on_copy_requested(self) -> None:
        i = self._acting()
        if i >= 0 and self._actions is not None:
            QGuiApplication.clipboard().setText(self._conversation.items()[i].text)
            self._actions.show_copied()

    def _copy_code(self, place: Place) -> None:
        blocks = [view.block for view in self._layout.message(place.message).read(place.piece)]
        QGuiApplication.clipboard().setText(code_of(blocks, place.block))
        self._copied = place
        self._copied_timer.start()
        self.viewport().update()

    def _on_copied_over(self) -> None:
        self._copied = None
        self.viewport().update()

    # Pointer

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Begin to mark text, or press what is under the pointer."""
        if event.button() != Qt.MouseButton.LeftButton:
            return
        hit = self._pointer.hit(event.position())
        is_third = self._click_timer.isActive()
        self._click_timer.stop()
        if hit is not None and is_third:
            self._pointer.select_block(hit.spot)
            self.viewport().update()
            return
        self._pressed = hit
        if hit is not None and not hit.is_on_copy:
            extends = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
            self._pointer.press(hit.spot, extends=extends)
        self._focused = -1
        self.viewport().update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Mark text while a button is held, else show what can be done here."""
        pos = event.position()
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._drag_pos = pos
            is_outside = not 0 <= pos.y() < self._position.height
            if is_outside and not self._drag_timer.isActive():
                self._drag_timer.start()
            elif not is_outside:
                self._drag_timer.stop()
            self._drag_to(pos)
            return
        hit = self._pointer.hit(pos)
        shape = Qt.CursorShape.ArrowCursor
        if hit is not None and (hit.href or hit.is_on_copy):
            shape = Qt.CursorShape.PointingHandCursor
        elif hit is not None and hit.is_on_text:
            shape = Qt.CursorShape.IBeamCursor
        self.viewport().setCursor(shape)
        self.viewport().setToolTip(self.tr("Copy code") if hit and hit.is_on_copy else hit.href if hit else "")
        self._hover(hit.spot.place.message if hit is not None else -1)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Follow a link or press a button where nothing was marked."""
        self._drag_timer.stop()
        pressed, self._pressed = self._pressed, None
        if event.button() != Qt.MouseButton.LeftButton or pressed is None:
            return
        hit = self._pointer.hit(event.position())
        selection = self._pointer.selection
        if hit is not None and pressed.is_on_copy and hit.is_on_copy:
            self._copy_code(hit.spot.place)
        elif hit is not None and hit.href and hit.href == pressed.href and (selection is None or selection.is_empty):
            self.link_clicked.emit(hit.href)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Mark a word."""
        hit = self._pointer.hit(event.position())
        if hit is not None and event.button() == Qt.MouseButton.LeftButton:
            self._pointer.select_word(hit.spot)
            self._click_timer.start()
            self.viewport().update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll the conversation, or sideways the wide block under the pointer."""
        dx = event.pixelDelta().x() or event.angleDelta().x() // 2
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and not dx:
            dx = event.angleDelta().y() // 2
        if dx and abs(dx) > abs(event.pixelDelta().y()) and self._scroll_sideways(event.position(), dx):
            event.accept()
        else:
            super().wheelEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        """Take the actions away with the pointer."""
        self._hover(-1)
        super().leaveEvent(event)

    def _scroll_sideways(self, pos: QPointF, dx: int) -> bool:
        shown = self._pointer.shown_at(pos.y())
        room = shown.view.text_width - self._geometry.rects(shown).text.width() if shown is not None else 0
        if shown is None or room <= 1:
            return False
        self._layout.scroll_sideways(shown.place, round(min(max(shown.view.scroll_x - dx, 0), room)))
        self.viewport().update()
        return True

    def _drag_to(self, pos: QPointF) -> None:
        hit = self._pointer.hit(pos)
        if hit is not None and self._pressed is not None and not self._pressed.is_on_copy:
            self._pointer.drag(hit.spot)
            self.viewport().update()

    def _on_drag_due(self) -> None:
        y = self._drag_pos.y()
        beyond = y if y < 0 else y - self._position.height
        bar = self.verticalScrollBar()
        bar.setValue(bar.value() + round(max(min(beyond, _DRAG_PX), -_DRAG_PX)))
        self._drag_to(QPointF(self._drag_pos.x(), min(max(y, 0), self._position.height - 1)))

    # Keyboard

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Scroll, go from message to message, and copy."""
        bar = self.verticalScrollBar()
        is_control = bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_selection()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self.select_all()
        elif is_control and event.key() in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self._step_focus(-1 if event.key() == Qt.Key.Key_Up else 1)
        elif event.key() == Qt.Key.Key_Home:
            bar.setValue(0)
        elif event.key() == Qt.Key.Key_End:
            self.scroll_to_end()
        elif event.key() == Qt.Key.Key_Space:
            bar.setValue(bar.value() + self._position.height - 6 * GRID)
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show which message the keyboard is on, where the keyboard brought the focus."""
        super().focusInEvent(event)
        if event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason) and self._focused < 0:
            shown = self._pointer.shown_at(self._position.height - 1)
            self._focused = shown.place.message if shown is not None else -1
            self._place_actions()
        self.viewport().update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Take the frame away."""
        super().focusOutEvent(event)
        self.viewport().update()

    def _step_focus(self, step: int) -> None:
        n = self._layout.n_messages
        if n:
            start = self._focused if self._focused >= 0 else n if step < 0 else -1
            self._focused = min(max(start + step, 0), n - 1)
            self._hovered = -1
            self._position.go_to_message(self._focused)
            self._place()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Offer what can be done with what is under the pointer or the keyboard."""
        hit = self._pointer.hit(QPointF(event.pos()))
        if event.reason() != QContextMenuEvent.Reason.Keyboard and hit is not None:
            self._hover(hit.spot.place.message)
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        selection = self._pointer.selection
        copy = menu.addAction(self.tr("Copy"))
        copy.setEnabled(selection is not None and not selection.is_empty)
        copy.triggered.connect(self.copy_selection)
        menu.addAction(self.tr("Select all")).triggered.connect(self.select_all)
        i = self._acting()
        if i >= 0:
            menu.addAction(self.tr("Copy message")).triggered.connect(self._on_copy_requested)
            for url in links_of(self._layout.message(i))[:_MENU_LINKS]:
                link = menu.addAction(self.tr("Open {url}").format(url=url[:80].replace("&", "&&")))
                link.setData(url)
        menu.triggered.connect(self._on_menu_triggered)
        menu.popup(event.globalPos())

    def _on_menu_triggered(self, action: QAction) -> None:
        if action.data():
            self.link_clicked.emit(str(action.data()))
