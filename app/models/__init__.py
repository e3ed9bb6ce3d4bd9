"""The state of the window, without widgets: views receive these objects and show them."""

from app.bridge.messages import ModelEntry, UserError
from app.models.catalogue import ModelCatalogue
from app.models.chat_list import ChatListModel, ChatRow
from app.models.controller import ChatController
from app.models.conversation import ConversationModel, MessageItem
from app.models.generation import GenerationState, GenerationValues, Phase

__all__ = [
    "ChatController",
    "ChatListModel",
    "ChatRow",
    "ConversationModel",
    "GenerationState",
    "GenerationValues",
    "MessageItem",
    "ModelCatalogue",
    "ModelEntry",
    "Phase",
    "UserError",
]
