"""The dialog that adds a model which runs elsewhere."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QDialog, QDialogButtonBox, QFormLayout, QLabel, QLineEdit, QWidget

from app.remote.endpoint import EndpointError, RemoteEndpoint, save_endpoint
from app.remote.keys import keep_key


class RemoteDialog(QDialog):
    """Asks where a remote model is and writes a file for it among the models; its key goes to the system's keyring.

    Attributes:
        path: of the file, once the dialog was accepted.
        is_key_kept: whether the key will be known after this run.

    Thread: GUI thread.
    """

    def __init__(self, folder: Path, parent: QWidget | None) -> None:
        super().__init__(parent)
        self.setObjectName("remote_dialog")
        self.setWindowTitle(self.tr("Add a remote model"))
        self._folder = folder
        self.path: Path | None = None
        self.is_key_kept = True
        self._url_edit, self._model_edit, self._key_edit = QLineEdit(self), QLineEdit(self), QLineEdit(self)
        self._url_edit.setPlaceholderText("https://example.org/v1")
        self._key_edit.setEchoMode(QLineEdit.EchoMode.Password)
        self._status_label = QLabel(self.tr("What you write in chats with this model is sent to that address."), self)
        self._status_label.setWordWrap(True)
        self._buttons = QDialogButtonBox(
            QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel, self
        )
        form = QFormLayout(self)
        form.addRow(self.tr("Address"), self._url_edit)
        form.addRow(self.tr("Model"), self._model_edit)
        form.addRow(self.tr("Key"), self._key_edit)
        form.addRow(self._status_label)
        form.addRow(self._buttons)
        for edit, name in (
            (self._url_edit, self.tr("Address")),
            (self._model_edit, self.tr("Model")),
            (self._key_edit, self.tr("Key")),
        ):
            edit.setAccessibleName(name)
        self._buttons.accepted.connect(self.accept)
        self._buttons.rejected.connect(self.reject)
        self.resize(480, self.sizeHint().height())

    def accept(self) -> None:
        """Write the file, or say what is wrong."""
        try:
            endpoint = RemoteEndpoint(self._url_edit.text().strip().rstrip("/"), self._model_edit.text().strip())
            self.path = save_endpoint(endpoint, self._folder)
        except EndpointError as error:
            self._status_label.setText(str(error))
            return
        except OSError as error:
            text = self.tr("The file could not be written: {reason}")
            self._status_label.setText(text.format(reason=error.strerror or error))
            return
        key = self._key_edit.text().strip()
        if key:
            self.is_key_kept = keep_key(endpoint.url, key)
        super().accept()
