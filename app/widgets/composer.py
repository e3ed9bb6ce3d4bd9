"""The box in which a person writes: text, the model's name, how full the context is, and Send or Stop."""

from __future__ import annotations

import re

from PySide6.QtCore import QEvent, QMimeData, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QFontMetrics,
    QInputMethodEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QTextOption,
)
from PySide6.QtWidgets import QAbstractButton, QFrame, QHBoxLayout, QPlainTextEdit, QToolButton, QVBoxLayout, QWidget

from app.icons import paint_icon
from app.models import GenerationState, Phase
from app.theme import GRID, Theme
from app.widgets.context_meter import ContextMeter

_MAX_PASTE_CHARS = 2_000_000
_UNBROKEN_CHARS = 10_000
BUSY = (Phase.PREFILL, Phase.GENERATING, Phase.STOPPING)


class ComposerEdit(QPlainTextEdit):
    """The text of the composer: Enter sends, Shift+Enter begins a line, and composing with an IME does neither.

    Signals:
        submitted: Enter was pressed.
        recall_requested: the up arrow was pressed in an empty box.
        focus_changed(has_focus)
    """

    submitted = Signal()
    recall_requested = Signal()
    focus_changed = Signal(bool)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("composer_edit")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.choose_wrapping("")
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        self._preedit = ""

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        """Remember whether a word is being composed."""
        self._preedit = event.preeditString()
        super().inputMethodEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Send, begin a line, or recall."""
        is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_enter and self._preedit:
            event.accept()
        elif is_enter and not event.modifiers() & (Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier):
            self.submitted.emit()
        elif is_enter:
            self.insertPlainText("\n")
            self.ensureCursorVisible()
        elif event.key() == Qt.Key.Key_Up and self.document().isEmpty():
            self.recall_requested.emit()
        else:
            super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        """Leave the window's shortcuts to the window, which Qt's text control would take as editing keys."""
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent):
            is_control = event.modifiers() == Qt.KeyboardModifier.ControlModifier
            if is_control and event.key() in (Qt.Key.Key_K, Qt.Key.Key_B, Qt.Key.Key_N, Qt.Key.Key_L, Qt.Key.Key_R):
                event.ignore()
                return False
        return super().event(event)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Take pasted text without its formatting, and not more of it than can be shown."""
        if source.hasText():
            text = source.text()[:_MAX_PASTE_CHARS]
            self.choose_wrapping(text)
            self.insertPlainText(text)

    def choose_wrapping(self, text: str) -> None:
        """Wrap lines, unless text that comes in is so long without a space that wrapping it would take minutes."""
        is_unbroken = len(text) > _UNBROKEN_CHARS and re.search(rf"\S{{{_UNBROKEN_CHARS}}}", text) is not None
        modes = QTextOption.WrapMode
        self.setWordWrapMode(modes.NoWrap if is_unbroken else modes.WrapAtWordBoundaryOrAnywhere)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Say that the box has the focus."""
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Say that the box has lost the focus."""
        super().focusOutEvent(event)
        self.focus_changed.emit(False)

    def height_for_text(self, limit: int) -> int:
        """Return the height that shows all lines, at most `limit` px."""
        line = QFontMetrics(self.font()).lineSpacing()
        n_lines = max(round(self.document().size().height()), 1)  # counted in lines by QPlainTextEdit
        return min(max(n_lines, 1) * line + 4, max(limit, line + 4))


class SendButton(QAbstractButton):
    """A round button that sends, and in the same place stops."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("send_button")
        self._theme = theme
        self.is_stop = False
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.set_stop(False)

    def set_stop(self, is_stop: bool) -> None:
        """Choose what the button does."""
        self.is_stop = is_stop
        name = self.tr("Stop") if is_stop else self.tr("Send")
        self.setToolTip(self.tr("Stop (Esc)") if is_stop else self.tr("Send (Enter)"))
        self.setAccessibleName(name)
        self.update()

    def sizeHint(self) -> QSize:
        """Return the size of the circle, growing with the fonts."""
        side = self._theme.scaled(36)
        return QSize(side, side)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the circle and the drawing in it."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect()).adjusted(2, 2, -2, -2)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.colour("accent" if self.isEnabled() else "hover"))
        painter.drawEllipse(rect)
        if self.hasFocus():
            painter.setPen(QPen(self._theme.colour("text"), 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(rect.adjusted(-1, -1, 1, 1))
        inset = (self.width() - self._theme.scaled(20)) / 2
        colour = self._theme.colour("on_accent" if self.isEnabled() else "out")
        icon = QRectF(self.rect()).adjusted(inset, inset, -inset, -inset)
        paint_icon(painter, "stop" if self.is_stop else "send", colour, icon)


class Composer(QFrame):
    """One rounded box that grows with its text to a third of the window.

    Signals:
        submitted(text): a person wants to send this; the box keeps it until `clear`.
        stop_requested
        text_changed(text): the draft is now this.
        model_requested: show the models.
        context_requested(sentence): show how full the context is.
        recall_requested: the up arrow in an empty box.

    Thread: GUI thread.
    """

    submitted = Signal(str)
    stop_requested = Signal()
    text_changed = Signal(str)
    model_requested = Signal()
    context_requested = Signal(str)
    recall_requested = Signal()

    def __init__(self, generation: GenerationState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer_box")
        self._generation = generation
        self._theme = theme
        self._edit = ComposerEdit(self)
        self._edit.setPlaceholderText(self.tr("Write a message"))
        self._edit.setAccessibleName(self.tr("Message"))
        self._model_button = QToolButton(self)
        self._model_button.setObjectName("model_button")
        self._model_button.setToolTip(self.tr("Choose a model (Ctrl+L)"))
        self._model_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
        self._model_button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._meter = ContextMeter(generation, theme, self)
        self._send_button = SendButton(theme, self)
        row = QHBoxLayout()
        row.setSpacing(GRID)
        row.addWidget(self._model_button)
        row.addStretch(1)
        row.addWidget(self._meter)
        row.addWidget(self._send_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(4, 12, GRID, GRID)
        column.setSpacing(4)
        text_row = QHBoxLayout()
        text_row.setContentsMargins(12, 0, GRID, 0)
        text_row.addWidget(self._edit)
        column.addLayout(text_row)
        column.addLayout(row)
        self.setFocusProxy(self._edit)
        self._connect()
        self._on_theme_changed()
        self._on_generation_changed()

    @property
    def text(self) -> str:
        """What stands in the box."""
        return self._edit.toPlainText()

    def set_text(self, text: str) -> None:
        """Put a draft into the box, the cursor at its end."""
        if text != self.text:
            self._edit.choose_wrapping(text)
            self._edit.setPlainText(text)
            self._edit.moveCursor(self._edit.textCursor().MoveOperation.End)

    def clear(self) -> None:
        """Empty the box after its text was sent; undo brings it back."""
        cursor = self._edit.textCursor()
        cursor.select(cursor.SelectionType.Document)
        cursor.removeSelectedText()

    def fit(self) -> None:
        """Take the height that the text needs, at most a third of the window."""
        self._edit.ensurePolished()
        limit = self.window().height() // 3
        self._edit.setFixedHeight(self._edit.height_for_text(limit))

    def _connect(self) -> None:
        self._generation.changed.connect(self._on_generation_changed)
        self._theme.changed.connect(self._on_theme_changed)
        self._edit.textChanged.connect(self._on_text_changed)
        self._edit.submitted.connect(self._on_submitted)
        self._edit.recall_requested.connect(self.recall_requested)
        self._edit.focus_changed.connect(self._on_focus_changed)
        self._model_button.clicked.connect(self.model_requested)
        self._meter.clicked.connect(self._on_meter_clicked)
        self._send_button.clicked.connect(self._on_send_clicked)

    def _on_text_changed(self) -> None:
        self.fit()
        self._update_send()
        self.text_changed.emit(self.text)

    def _on_submitted(self) -> None:
        if self.text.strip():
            self.submitted.emit(self.text)

    def _on_send_clicked(self) -> None:
        if self._send_button.is_stop:
            self.stop_requested.emit()
        else:
            self._on_submitted()

    def _on_meter_clicked(self) -> None:
        self.context_requested.emit(self._meter.text_of_use())

    def _on_focus_changed(self, has_focus: bool) -> None:
        self.setProperty("focused", has_focus)
        self.style().unpolish(self)
        self.style().polish(self)

    def _on_generation_changed(self) -> None:
        state = self._generation
        if state.phase == Phase.NO_MODEL:
            name = self.tr("Choose a model")
        elif state.phase == Phase.LOADING:
            name = self.tr("Loading {name}").format(name=state.model_name)
        else:
            name = state.model_name
        self._model_button.setText(f"{name}  ▾")
        self._model_button.setAccessibleName(self.tr("Model: {name}").format(name=name))
        self._update_send()

    def _update_send(self) -> None:
        is_busy = self._generation.phase in BUSY
        self._send_button.set_stop(is_busy)
        self._send_button.setEnabled(self._generation.phase != Phase.STOPPING if is_busy else bool(self.text.strip()))

    def _on_theme_changed(self) -> None:
        self._send_button.updateGeometry()
        self.fit()
