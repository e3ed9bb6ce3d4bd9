"""Chat templates: messages to text, and text to tokens that no message can forge."""

from engine.chat.marks import Message
from engine.chat.prompt import Segment, Turns
from engine.chat.template import ChatTemplate

__all__ = ["ChatTemplate", "Message", "Segment", "Turns"]
