"""Text to token ids and back."""

from engine.tokenizer.base import Tokenizer
from engine.tokenizer.detokenizer import Detokenizer
from engine.tokenizer.loader import load_tokenizer
from engine.tokenizer.vocabulary import TokenType

__all__ = ["Detokenizer", "TokenType", "Tokenizer", "load_tokenizer"]
