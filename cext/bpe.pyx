"""The compiled half of the tokenizers: vocabularies built from a file's bytes, text to ids, ids to bytes."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libcpp cimport bool as c_bool
from libcpp.vector cimport vector

import numpy as np


cdef extern from "status.h" namespace "cext":
    int STATUS_OK, STATUS_BAD_ARGUMENT, STATUS_NO_MEMORY, STATUS_BAD_DATA


cdef extern from "tokenizer_vocab.h" namespace "cext" nogil:
    cdef enum PieceForm:
        PIECE_BYTE_LEVEL, PIECE_SPACE_MARK
    cdef cppclass Strings:
        const uint8_t* blob
        const uint64_t* offsets
        const uint64_t* lengths
        int64_t n
    cdef cppclass Pool:
        const char* text(size_t i)
        size_t size(size_t i)
    cdef cppclass Vocab:
        int32_t n_tokens()
        const Pool& texts()
        const Pool& pieces()
    void _find_texts "cext::find_texts"(const Strings& texts, const Strings& names, int32_t* ids) except +


cdef extern from "tokenizer_core.h" namespace "cext" nogil:
    cdef cppclass TextPart:
        size_t begin, end
        int32_t token
    cdef cppclass Tokenizer:
        int cut(const char* text, size_t n, c_bool parse_special, vector[TextPart]& parts) noexcept
        int encode(const char* text, size_t n, c_bool parse_special, c_bool is_first, vector[int32_t]& out) noexcept
        int decode(const int32_t* ids, size_t n, c_bool with_special, vector[char]& out) noexcept
        const Vocab& vocab()


cdef extern from "tokenizer_bpe.h" namespace "cext" nogil:
    cdef cppclass BpeOptions:
        c_bool ignore_merges
        c_bool whole_newlines
    cdef cppclass BpeTokenizer(Tokenizer):
        BpeTokenizer() except +
        int build(
            const Strings& texts, const uint8_t* types, const uint8_t* strips, PieceForm form, const Strings& merges,
            const Strings& patterns, BpeOptions options, int64_t* bad_index
        ) noexcept
        int split(const char* text, size_t n, vector[size_t]& spans) noexcept


cdef extern from "tokenizer_spm.h" namespace "cext" nogil:
    cdef cppclass SpmTokenizer(Tokenizer):
        SpmTokenizer() except +
        int build(
            const Strings& texts, const uint8_t* types, const float* scores, const uint8_t* strips,
            c_bool add_space_prefix, int32_t unknown
        ) noexcept


cdef extern from "tokenizer_wpm.h" namespace "cext" nogil:
    cdef cppclass WpmTokenizer(Tokenizer):
        WpmTokenizer() except +
        int build(const Strings& texts, const uint8_t* types, const uint8_t* strips, int32_t unknown) noexcept


cdef extern from "tokenizer_ugm.h" namespace "cext" nogil:
    cdef cppclass UgmOptions:
        c_bool add_space_prefix
        c_bool remove_extra_whitespaces
    cdef cppclass UgmTokenizer(Tokenizer):
        UgmTokenizer() except +
        int build(
            const Strings& texts, const uint8_t* types, const float* scores, const uint8_t* strips,
            const uint8_t* charsmap, size_t n_charsmap, UgmOptions options, int32_t unknown
        ) noexcept


cdef extern from "tokenizer_rwkv.h" namespace "cext" nogil:
    cdef cppclass RwkvTokenizer(Tokenizer):
        RwkvTokenizer() except +
        int build(const Strings& texts, const uint8_t* types, const uint8_t* strips, int32_t unknown) noexcept


class MergeError(ValueError):
    """A merge that is no pair of tokens of the vocabulary, or whose result is none.

    Attributes:
        index: which one.
    """

    def __init__(self, index: int) -> None:
        super().__init__(f"merge {index}")
        self.index = index


cdef class _StringView:
    """Checks an array of strings once and holds its memory while C++ reads it."""

    cdef const uint8_t[::1] blob
    cdef const uint64_t[::1] offsets, lengths
    cdef Strings view

    def __cinit__(self, strings):
        offsets, lengths = np.ascontiguousarray(strings.offsets), np.ascontiguousarray(strings.lengths)
        if len(offsets) != len(lengths):
            raise ValueError("offsets and lengths differ in number")
        size = np.uint64(len(strings.blob))
        if len(offsets) and ((offsets > size).any() or (lengths > size - np.minimum(offsets, size)).any()):
            raise ValueError("a string lies outside the blob")
        # SAFETY: an empty memoryview has no first element to point at; one spare byte stands in for an empty blob.
        self.blob = strings.blob if len(strings.blob) else np.zeros(1, dtype=np.uint8)
        self.offsets, self.lengths = offsets, lengths
        self.view.blob = &self.blob[0]
        self.view.offsets = &self.offsets[0] if len(offsets) else NULL
        self.view.lengths = &self.lengths[0] if len(lengths) else NULL
        self.view.n = len(offsets)


cdef class TokenizerCore:
    """A tokenizer of one of the models below; made by the functions `bpe` and `spm`.

    Thread: any; calls may overlap.
    """

    cdef Tokenizer* _core

    def __cinit__(self):
        self._core = NULL

    def __dealloc__(self):
        del self._core

    @property
    def n_vocab(self) -> int:
        """Tokens in the vocabulary."""
        return self._core.vocab().n_tokens()

    def cut(self, const uint8_t[::1] text not None, bint parse_special):
        """The special tokens in UTF-8 text and what stands between them: list[(first byte, byte behind, token or -1)].

        Raises: MemoryError.
        """
        cdef vector[TextPart] parts
        cdef Py_ssize_t n = text.shape[0]
        cdef int status
        if n == 0:
            return []
        with nogil:
            status = self._core.cut(<const char*>&text[0], n, parse_special, parts)
        if status != STATUS_OK:
            raise MemoryError("no memory to cut the text")
        return [(part.begin, part.end, part.token) for part in parts]

    def encode(self, const uint8_t[::1] text not None, bint parse_special, bint is_first=True):
        """The ids of UTF-8 text, without any that are added in front or behind.

        Args:
            text: u8[n_bytes].
            parse_special: recognise control and unknown tokens in the text (user-defined ones always are).
            is_first: it stands at the start, or behind a special token.
        Returns: list[int].
        Raises: MemoryError.
        """
        cdef vector[int32_t] ids
        cdef Py_ssize_t n = text.shape[0]
        cdef int status
        if n == 0:
            return []
        with nogil:
            status = self._core.encode(<const char*>&text[0], n, parse_special, is_first, ids)
        if status != STATUS_OK:
            raise MemoryError("no memory to tokenize")
        return ids

    def decode(self, const int32_t[::1] ids not None, bint with_special):
        """The bytes of tokens, one behind the other.

        Args:
            ids: i32[n].
            with_special: also those of control and unknown tokens.
        Returns: bytes.
        Raises: IndexError: an id outside the vocabulary. MemoryError.
        """
        cdef vector[char] out
        cdef Py_ssize_t i, n = ids.shape[0]
        cdef int status
        cdef int32_t n_vocab = self._core.vocab().n_tokens()
        for i in range(n):
            if ids[i] < 0 or ids[i] >= n_vocab:
                raise IndexError(f"token {ids[i]} is outside the vocabulary of {n_vocab}")
        if n == 0:
            return b""
        with nogil:
            status = self._core.decode(&ids[0], n, with_special, out)
        if status != STATUS_OK:
            raise MemoryError("no memory for the text")
        return out.data()[:out.size()] if out.size() else b""

    def text(self, int32_t token):
        """bytes: the token as it is written in the file."""
        self._check(token)
        cdef const Pool* texts = &self._core.vocab().texts()
        return texts.text(token)[:texts.size(token)]

    def piece(self, int32_t token):
        """bytes: what the token stands for in text."""
        self._check(token)
        cdef const Pool* pieces = &self._core.vocab().pieces()
        return pieces.text(token)[:pieces.size(token)]

    cdef int _check(self, int32_t token) except -1:
        if token < 0 or token >= self._core.vocab().n_tokens():
            raise IndexError(f"token {token} is outside the vocabulary of {self._core.vocab().n_tokens()}")
        return 0


cdef class BpeCore(TokenizerCore):
    """Byte-pair encoding.

    Args:
        texts: StringArray[n], the tokens as in the file.
        types: u8[n], their types, all below 7.
        strips: u8[n], white space that goes with a special token (1 left, 2 right), or None.
        merges: StringArray, "left right" by rank.
        patterns: StringArray, one pattern per splitting stage.
        byte_level: tokens are bytes by GPT-2's table; else UTF-8 with U+2581 for spaces and <0xXX> for bytes.
        ignore_merges: a word that is a token is that token.
        whole_newlines: the same for words of newlines only.
    Raises: MergeError; ValueError: a pattern that is not understood, or arrays that do not fit. MemoryError.
    """

    def __init__(self, texts, const uint8_t[::1] types not None, const uint8_t[::1] strips, merges, patterns, *,
                 bint byte_level, bint ignore_merges=False, bint whole_newlines=False):
        cdef _StringView texts_view = _StringView(texts), merges_view = _StringView(merges)
        cdef _StringView patterns_view = _StringView(patterns)
        cdef const uint8_t* strip_flags = _checked_flags(texts_view, types, strips)
        cdef BpeOptions options
        cdef int64_t bad_index = -1
        cdef int status
        cdef BpeTokenizer* core = new BpeTokenizer()
        del self._core
        self._core = core
        options.ignore_merges, options.whole_newlines = ignore_merges, whole_newlines
        cdef PieceForm form = PIECE_BYTE_LEVEL if byte_level else PIECE_SPACE_MARK
        with nogil:
            status = core.build(
                texts_view.view, &types[0], strip_flags, form, merges_view.view, patterns_view.view, options, &bad_index
            )
        if status == STATUS_BAD_DATA:
            raise MergeError(bad_index)
        if status == STATUS_BAD_ARGUMENT:
            raise ValueError(f"pattern {bad_index} is not understood: {patterns[bad_index]!r}")
        if status != STATUS_OK:
            raise MemoryError("no memory for the vocabulary")

    def split(self, const uint8_t[::1] text not None):
        """The words that the patterns split UTF-8 text into, for tests: list[bytes]."""
        cdef vector[size_t] spans
        cdef Py_ssize_t n = text.shape[0]
        if n == 0:
            return []
        cdef int status
        cdef BpeTokenizer* core = <BpeTokenizer*>self._core
        with nogil:
            status = core.split(<const char*>&text[0], n, spans)
        if status != STATUS_OK:
            raise MemoryError("no memory to split")
        cdef size_t i
        return [bytes(text[spans[i]:spans[i + 1]]) for i in range(0, spans.size(), 2)]


cdef class SpmCore(TokenizerCore):
    """SentencePiece BPE.

    Args:
        texts: StringArray[n], the tokens as in the file.
        types: u8[n], their types, all below 7.
        strips: u8[n], white space that goes with a special token (1 left, 2 right), or None.
        scores: f32[n], none NaN; the higher, the earlier it is merged.
        add_space_prefix: text at the start, and behind a special token, gets a space in front.
        unknown: the token for what has no bytes in the vocabulary, or -1.
    Raises: ValueError: arrays that do not fit. MemoryError.
    """

    def __init__(self, texts, const uint8_t[::1] types not None, const uint8_t[::1] strips,
                 const float[::1] scores not None, *, bint add_space_prefix, int32_t unknown):
        cdef _StringView texts_view = _StringView(texts)
        cdef const uint8_t* strip_flags = _checked_flags(texts_view, types, strips)
        if scores.shape[0] != types.shape[0] or unknown >= types.shape[0]:
            raise ValueError("scores or the unknown token do not fit the tokens")
        cdef int status
        cdef SpmTokenizer* core = new SpmTokenizer()
        del self._core
        self._core = core
        with nogil:
            status = core.build(texts_view.view, &types[0], &scores[0], strip_flags, add_space_prefix, unknown)
        if status != STATUS_OK:
            raise MemoryError("no memory for the vocabulary")


cdef class WpmCore(TokenizerCore):
    """WordPiece; it encodes words that are normalised already, with spaces between them.

    Args:
        texts: StringArray[n], the tokens as in the file.
        types: u8[n], their types, all below 7.
        strips: u8[n], white space that goes with a special token (1 left, 2 right), or None.
        unknown: the token for a word that no tokens make up, or -1.
    Raises: ValueError: arrays that do not fit. MemoryError.
    """

    def __init__(self, texts, const uint8_t[::1] types not None, const uint8_t[::1] strips, *, int32_t unknown):
        cdef _StringView texts_view = _StringView(texts)
        cdef const uint8_t* strip_flags = _checked_flags(texts_view, types, strips)
        cdef int status
        cdef WpmTokenizer* core = new WpmTokenizer()
        del self._core
        self._core = core
        with nogil:
            status = core.build(texts_view.view, &types[0], strip_flags, unknown)
        if status != STATUS_OK:
            raise MemoryError("no memory for the vocabulary")


cdef class UgmCore(TokenizerCore):
    """SentencePiece Unigram.

    Args:
        texts: StringArray[n], the tokens as in the file.
        types: u8[n], their types, all below 7.
        strips: u8[n], white space that goes with a special token (1 left, 2 right), or None.
        scores: f32[n], none NaN: logarithms of probabilities.
        charsmap: u8[m], SentencePiece's compiled normalisation, or None.
        add_space_prefix: the first word of a text gets a space in front.
        remove_extra_whitespaces: so does every word, and other white space goes.
        unknown: the token for what is none.
    Raises: ValueError: arrays that do not fit, or a charsmap that breaks its format. MemoryError.
    """

    def __init__(self, texts, const uint8_t[::1] types not None, const uint8_t[::1] strips,
                 const float[::1] scores not None, const uint8_t[::1] charsmap, *, bint add_space_prefix,
                 bint remove_extra_whitespaces, int32_t unknown):
        cdef _StringView texts_view = _StringView(texts)
        cdef const uint8_t* strip_flags = _checked_flags(texts_view, types, strips)
        if scores.shape[0] != types.shape[0] or not 0 <= unknown < types.shape[0]:
            raise ValueError("scores or the unknown token do not fit the tokens")
        cdef bint has_map = charsmap is not None and charsmap.shape[0] > 0
        cdef const uint8_t* map_bytes = &charsmap[0] if has_map else NULL
        cdef size_t n_map = charsmap.shape[0] if has_map else 0
        cdef UgmOptions options
        cdef int status
        cdef UgmTokenizer* core = new UgmTokenizer()
        del self._core
        self._core = core
        options.add_space_prefix, options.remove_extra_whitespaces = add_space_prefix, remove_extra_whitespaces
        with nogil:
            status = core.build(
                texts_view.view, &types[0], &scores[0], strip_flags, map_bytes, n_map, options, unknown
            )
        if status == STATUS_BAD_DATA:
            raise ValueError("the charsmap breaks its format")
        if status != STATUS_OK:
            raise MemoryError("no memory for the vocabulary")


cdef class RwkvCore(TokenizerCore):
    """RWKV's longest match over bytes.

    Args:
        texts: StringArray[n], the tokens as in the file, escaped.
        types: u8[n], their types, all below 7.
        strips: u8[n], white space that goes with a special token (1 left, 2 right), or None.
        unknown: the token for a byte that starts none, or -1.
    Raises: ValueError: arrays that do not fit. MemoryError.
    """

    def __init__(self, texts, const uint8_t[::1] types not None, const uint8_t[::1] strips, *, int32_t unknown):
        cdef _StringView texts_view = _StringView(texts)
        cdef const uint8_t* strip_flags = _checked_flags(texts_view, types, strips)
        cdef int status
        cdef RwkvTokenizer* core = new RwkvTokenizer()
        del self._core
        self._core = core
        with nogil:
            status = core.build(texts_view.view, &types[0], strip_flags, unknown)
        if status != STATUS_OK:
            raise MemoryError("no memory for the vocabulary")


cdef const uint8_t* _checked_flags(
    _StringView texts, const uint8_t[::1] types, const uint8_t[::1] strips
) except? NULL:
    """The strip flags (NULL for none), once types and flags are known to fit the tokens."""
    cdef Py_ssize_t i, n = types.shape[0]
    if n == 0 or n != texts.view.n or n >= 2**31 - 1:
        raise ValueError(f"{n} types do not fit {texts.view.n} tokens")
    for i in range(n):
        if types[i] > 6:
            raise ValueError(f"token {i} has type {types[i]}")
    if strips is None:
        return NULL
    if strips.shape[0] != n:
        raise ValueError("strips do not fit the tokens")
    return &strips[0]


def find_texts(texts, names):
    """For each name the last token whose text it is, or -1.

    Args:
        texts: StringArray[n], tokens as in the file.
        names: StringArray[m].
    Returns: list[int] of m.
    """
    cdef _StringView texts_view = _StringView(texts), names_view = _StringView(names)
    ids_array = np.full(max(1, len(names)), -1, dtype=np.int32)
    cdef int32_t[::1] ids = ids_array
    with nogil:
        _find_texts(texts_view.view, names_view.view, &ids[0])
    return ids_array[:len(names)].tolist()
