"""Chat templates: messages to text, and text to tokens that no message can forge."""

from engine.chat.template import ChatTemplate, Message

__all__ = ["ChatTemplate", "Message"]
