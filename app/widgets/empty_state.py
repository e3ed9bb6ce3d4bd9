"""What stands in the middle while a chat has no message: what to do next."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.models import GenerationState, Phase
from app.theme import GRID

_WIDTH = 480  # px


class EmptyState(QWidget):
    """Says what to do next for a `GenerationState`.

    Signals:
        pick_requested: show the models found.
        open_requested: ask for a model file.
    """

    pick_requested = Signal()
    open_requested = Signal()

    def __init__(self, generation: GenerationState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("empty_state")
        self._generation = generation
        self._heading_label = QLabel(self)
        self._heading_label.setObjectName("heading_label")
        self._text_label = QLabel(self)
        for label in (self._heading_label, self._text_label):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setAlignment(Qt.AlignmentFlag.AlignCenter)
            label.setWordWrap(True)
        self._pick_button = QPushButton(self.tr("Choose a model…"), self)
        self._pick_button.setDefault(True)
        self._open_button = QPushButton(self.tr("Open a file…"), self)
        buttons = QHBoxLayout()
        buttons.setSpacing(GRID)
        buttons.addStretch(1)
        buttons.addWidget(self._pick_button)
        buttons.addWidget(self._open_button)
        buttons.addStretch(1)
        middle = QWidget(self)
        middle.setMaximumWidth(_WIDTH)
        column = QVBoxLayout(middle)
        column.setSpacing(12)
        column.addStretch(2)
        column.addWidget(self._heading_label)
        column.addWidget(self._text_label)
        column.addSpacing(GRID)
        column.addLayout(buttons)
        column.addStretch(3)
        row = QHBoxLayout(self)
        row.addWidget(middle)
        generation.changed.connect(self._on_generation_changed)
        self._pick_button.clicked.connect(self.pick_requested)
        self._open_button.clicked.connect(self.open_requested)
        self._on_generation_changed()

    @property
    def heading(self) -> str:
        """The larger of the two lines."""
        return self._heading_label.text()

    def _on_generation_changed(self) -> None:
        state = self._generation
        needs_model = state.phase == Phase.NO_MODEL
        if needs_model:
            heading = self.tr("Choose a model to talk to")
            text = state.error or self.tr(
                "Models are GGUF files on this computer. Choose one of those that were found, or open a file."
            )
        elif state.phase == Phase.LOADING:
            heading = self.tr("Loading {name}").format(name=state.model_name)
            text = self.tr("You can write already; the reply begins when the model is ready.")
        else:
            heading = self.tr("What is on your mind?")
            text = self.tr("{name} runs on this computer, and what you write stays on it.").format(
                name=state.model_name
            )
        self._heading_label.setText(heading)
        self._text_label.setText(text)
        self._pick_button.setVisible(needs_model)
        self._open_button.setVisible(needs_model)
