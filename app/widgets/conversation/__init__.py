"""The conversation: Markdown to blocks, blocks to small documents, and one painted view of them all.

Read in the order a message travels: pieces -> markdown -> blocks -> documents -> message_layout ->
conversation_layout -> view.
"""

from app.widgets.conversation.view import ConversationView

__all__ = ["ConversationView"]
