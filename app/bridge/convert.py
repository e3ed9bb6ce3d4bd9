"""Turns errors of the engine into what a person reads: what happened, and what to do about it.

Imported in the engine's and the catalogue's thread only, since it reads the engine's modules.
"""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.bridge.messages import UserError
from app.remote.endpoint import EndpointError
from app.remote.stream import RemoteError
from engine import errors

_CONTEXT = "errors"


def QT_TRANSLATE_NOOP(context: str, text: str) -> str:
    """Mark a text for pyside6-lupdate, which looks for this name; PySide's own has no useful return type."""
    return text


_DOWNLOAD_AGAIN = QT_TRANSLATE_NOOP("errors", "Download the file again, or choose another model.")
_CHOOSE_ANOTHER = QT_TRANSLATE_NOOP("errors", "Choose another model.")
_REPORT = QT_TRANSLATE_NOOP("errors", "Please report this with the log file from the data folder.")
_SEND_AGAIN = QT_TRANSLATE_NOOP("errors", "Send the message again: the chat's memory is computed anew.")

# {e} is the error: its fields, and as a whole its own sentence.
_TEXTS: dict[type[BaseException], tuple[str, str, str]] = {
    RemoteError: (
        QT_TRANSLATE_NOOP("errors", "The remote model failed"),
        QT_TRANSLATE_NOOP("errors", "{e}."),
        QT_TRANSLATE_NOOP("errors", "Look whether it runs, and whether its address and key are right."),
    ),
    EndpointError: (
        QT_TRANSLATE_NOOP("errors", "No remote model"),
        QT_TRANSLATE_NOOP("errors", "{e}."),
        QT_TRANSLATE_NOOP("errors", "Add it anew in the window that gets models."),
    ),
    errors.GGUFFormatError: (
        QT_TRANSLATE_NOOP("errors", "Damaged model file"),
        QT_TRANSLATE_NOOP("errors", "The model file {e.path} is damaged or incomplete ({e.field}: {e.reason})."),
        _DOWNLOAD_AGAIN,
    ),
    errors.TensorMissingError: (
        QT_TRANSLATE_NOOP("errors", "Incomplete model file"),
        QT_TRANSLATE_NOOP("errors", "The model file lacks the weights '{e.name}'."),
        _DOWNLOAD_AGAIN,
    ),
    errors.TensorShapeError: (
        QT_TRANSLATE_NOOP("errors", "Damaged model file"),
        QT_TRANSLATE_NOOP(
            "errors", "In the model file the weights '{e.name}' have another shape than the model needs."
        ),
        _DOWNLOAD_AGAIN,
    ),
    errors.UnsupportedQuantError: (
        QT_TRANSLATE_NOOP("errors", "Unknown quantisation"),
        QT_TRANSLATE_NOOP("errors", "Causerie cannot compute with the quantisation {e.type_name}."),
        QT_TRANSLATE_NOOP("errors", "Choose a file of the same model with another quantisation."),
    ),
    errors.HparamError: (
        QT_TRANSLATE_NOOP("errors", "Damaged model file"),
        QT_TRANSLATE_NOOP("errors", "A parameter of the model file makes no sense ({e.key}: {e.reason})."),
        _DOWNLOAD_AGAIN,
    ),
    errors.UnsupportedArchitectureError: (
        QT_TRANSLATE_NOOP("errors", "Unknown architecture"),
        QT_TRANSLATE_NOOP("errors", "Causerie does not know the architecture '{e.arch}'."),
        _CHOOSE_ANOTHER,
    ),
    errors.UnsupportedTokenizerError: (
        QT_TRANSLATE_NOOP("errors", "Unknown tokenizer"),
        QT_TRANSLATE_NOOP("errors", "Causerie does not know the tokenizer {e.what} of this model."),
        _CHOOSE_ANOTHER,
    ),
    errors.ChatTemplateError: (
        QT_TRANSLATE_NOOP("errors", "Chat template"),
        QT_TRANSLATE_NOOP("errors", "The model's chat template does not work with this chat: {e.reason}."),
        _CHOOSE_ANOTHER,
    ),
    errors.ContextFullError: (
        QT_TRANSLATE_NOOP("errors", "No room"),
        QT_TRANSLATE_NOOP(
            "errors", "The message does not fit into the chat's context: {e.needed} {e.what} are needed."
        ),
        QT_TRANSLATE_NOOP("errors", "Shorten the message, or start a chat with a larger context."),
    ),
    errors.BatchError: (
        QT_TRANSLATE_NOOP("errors", "Fault in the program"),
        QT_TRANSLATE_NOOP("errors", "The program gave the engine something it cannot compute: {e}."),
        _REPORT,
    ),
    errors.ParamError: (
        QT_TRANSLATE_NOOP("errors", "A setting does not fit"),
        QT_TRANSLATE_NOOP("errors", "A setting does not fit this model: {e}."),
        QT_TRANSLATE_NOOP("errors", "Change the setting, or choose another model."),
    ),
    errors.SamplingParamError: (
        QT_TRANSLATE_NOOP("errors", "A setting does not fit"),
        QT_TRANSLATE_NOOP("errors", "The sampling setting {e.name} cannot be {e.value} ({e.reason})."),
        QT_TRANSLATE_NOOP("errors", "Change the setting and send again."),
    ),
    errors.UnsupportedCallError: (
        QT_TRANSLATE_NOOP("errors", "Not possible with this model"),
        QT_TRANSLATE_NOOP("errors", "This model cannot be used for a chat: {e}."),
        _CHOOSE_ANOTHER,
    ),
    errors.StateVersionError: (
        QT_TRANSLATE_NOOP("errors", "Saved memory not used"),
        QT_TRANSLATE_NOOP("errors", "The saved memory of this chat is of another version of Causerie."),
        _SEND_AGAIN,
    ),
    errors.StateMismatchError: (
        QT_TRANSLATE_NOOP("errors", "Saved memory not used"),
        QT_TRANSLATE_NOOP("errors", "The saved memory of this chat was made with another model or other settings."),
        _SEND_AGAIN,
    ),
    errors.StateFileError: (
        QT_TRANSLATE_NOOP("errors", "Saved memory not used"),
        QT_TRANSLATE_NOOP("errors", "The saved memory of this chat is damaged ({e.reason})."),
        _SEND_AGAIN,
    ),
    errors.AdapterError: (
        QT_TRANSLATE_NOOP("errors", "Adapter"),
        QT_TRANSLATE_NOOP("errors", "The adapter does not fit this model: {e}."),
        QT_TRANSLATE_NOOP("errors", "Choose an adapter that was made for this model."),
    ),
    errors.BackendUnavailableError: (
        QT_TRANSLATE_NOOP("errors", "Device not available"),
        QT_TRANSLATE_NOOP("errors", "The device to compute on is not there: {e}."),
        QT_TRANSLATE_NOOP("errors", "Choose another device."),
    ),
    errors.OutOfMemoryError: (
        QT_TRANSLATE_NOOP("errors", "Not enough memory"),
        QT_TRANSLATE_NOOP("errors", "There is not enough free memory for {e.what}."),
        QT_TRANSLATE_NOOP("errors", "Close other programs, choose a smaller model or a smaller context."),
    ),
    errors.KernelBuildError: (
        QT_TRANSLATE_NOOP("errors", "Device not usable"),
        QT_TRANSLATE_NOOP("errors", "The device's compiler refused '{e.kernel}'."),
        QT_TRANSLATE_NOOP("errors", "Choose another device."),
    ),
    errors.KernelStatusError: (
        QT_TRANSLATE_NOOP("errors", "Computing failed"),
        QT_TRANSLATE_NOOP("errors", "The model gave no usable numbers: {e}."),
        QT_TRANSLATE_NOOP("errors", "The file may be damaged: download it again, or choose another model."),
    ),
    FileNotFoundError: (
        QT_TRANSLATE_NOOP("errors", "File not found"),
        QT_TRANSLATE_NOOP("errors", "The file {e.filename} is not there any more."),
        _CHOOSE_ANOTHER,
    ),
    PermissionError: (
        QT_TRANSLATE_NOOP("errors", "No access"),
        QT_TRANSLATE_NOOP("errors", "The file {e.filename} may not be read."),
        QT_TRANSLATE_NOOP("errors", "Change its permissions, or choose another model."),
    ),
    OSError: (
        QT_TRANSLATE_NOOP("errors", "File not readable"),
        QT_TRANSLATE_NOOP("errors", "A file could not be read or written: {e}."),
        QT_TRANSLATE_NOOP("errors", "See that the disk is there and has room."),
    ),
    MemoryError: (
        QT_TRANSLATE_NOOP("errors", "Not enough memory"),
        QT_TRANSLATE_NOOP("errors", "There is not enough free memory."),
        QT_TRANSLATE_NOOP("errors", "Close other programs, choose a smaller model or a smaller context."),
    ),
    Exception: (
        QT_TRANSLATE_NOOP("errors", "Fault in the program"),
        QT_TRANSLATE_NOOP("errors", "Something went wrong that should not have: {e}."),
        _REPORT,
    ),
}


def user_error(error: BaseException) -> UserError:
    """Return what a person should read about an error.

    Args:
        error: of the engine or of the system; anything else is told as a fault in the program.

    Thread: any.
    """
    for kind in type(error).__mro__:
        if kind in _TEXTS:
            title, sentence, remedy = _TEXTS[kind]
            return UserError(_tr(title), _tr(sentence).format(e=error), _tr(remedy))
    return UserError(_tr("Fault in the program"), str(error))


def is_mapped(kind: type[BaseException]) -> bool:
    """Whether errors of exactly this class have words of their own."""
    return kind in _TEXTS


def _tr(text: str) -> str:
    return QCoreApplication.translate(_CONTEXT, text)
