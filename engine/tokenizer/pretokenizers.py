"""How each `tokenizer.ggml.pre` splits text into words before pairs merge, and what else the name implies.

Read by `bpe`, which hands the patterns to the compiled core. Each stage splits every piece that the stage before left:
its matches become pieces, and so does what lies between them.

Source: the pre-tokenizers of each family's own `tokenizer.json` (tokenizers' "Split", "Digits", "Punctuation" and
"ByteLevel" steps); which name means which family, and the flags, as llama.cpp's `llama-vocab.cpp` has them.
"""

from __future__ import annotations

from dataclasses import dataclass

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_ASCII_PUNCTUATION = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"

# Source: openai/gpt-2, encoder.py.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Source: meta-llama/Meta-Llama-3-8B, tokenizer.json; openai/tiktoken, cl100k_base.
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
# Source: Qwen/Qwen2-7B, tokenizer.json.
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# Source: Qwen/Qwen3.5, tokenizer.json: combining marks belong to their letters.
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
# Source: mistralai/Mistral-Nemo-Instruct-2407, tokenizer.json ("tekken"): words break between lower and upper case.
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
# Source: openai/tiktoken, tiktoken_ext/openai_public.py, o200k_base.
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
# Source: moonshotai/Kimi-K2-Instruct, tokenization_kimi.py: as o200k_base, but Han runs stand alone.
_HAN = (
    "\u2e80-\u2e99\u2e9b-\u2ef3\u2f00-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufa6d\ufa70-\ufad9\U00016fe2-\U00016fe3\U00016ff0-\U00016ff1\U00020000-\U0002a6df"
    "\U0002a700-\U0002b739\U0002b740-\U0002b81d\U0002b820-\U0002cea1\U0002ceb0-\U0002ebe0\U0002ebf0-\U0002ee5d"
    "\U0002f800-\U0002fa1d\U00030000-\U0003134a\U00031350-\U000323af"
)
_KIMI_UPPER, _KIMI_LOWER = f"[{_UPPER}&&[^{_HAN}]]", f"[{_LOWER}&&[^{_HAN}]]"
_KIMI_K2 = (
    rf"[{_HAN}]+|[^\r\n\p{{L}}\p{{N}}]?{_KIMI_UPPER}*{_KIMI_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_KIMI_UPPER}+{_KIMI_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
# Source: deepseek-ai/DeepSeek-V3, tokenizer.json.
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    rf"{_ASCII_PUNCTUATION}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-\ud7ff]+"
# Source: deepseek-ai/deepseek-llm-7b-base, tokenizer.json; the letters of scripts with case.
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ"
    "-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼ\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_DEEPSEEK_LETTERS}]+",
    r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+".replace(r"\u3000", "\u3000"),
    r"\s+$",
    _DEEPSEEK_CJK,
    r"\p{N}",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")
# Source: tiiuae/falcon-7b, tokenizer.json.
_FALCON = (r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")
_DIGITS_GPT2 = (r"\p{N}", _GPT2)
# Source: bigscience/bloom, tokenizer.json.
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
# Source: inclusionAI/Ling-lite, tokenizer.json.
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
# Source: ByteDance-Seed/Seed-Coder-8B-Base, tokenizer.json.
_SEED_CODER = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Source: LGAI-EXAONE/K-EXAONE-236B-A23B, tokenizer.json.
_EXAONE_MOE = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
# Source: inceptionai/Jais-2-8B-Chat, tokenizer.json: as Llama 3, but white space in powers of two.
_JAIS2 = _LLAMA3.replace(
    r"\s+(?!\S)|\s+", "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s"
)
# Source: tencent/Youtu-LLM-2B, tokenizer.json.
_YOUTU = (
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+",
    _GPT4O.replace(r"\p{N}{1,3}", r"\p{N}"),
)
_LINES = r"[^\n]+|[\n]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """What one name of `tokenizer.ggml.pre` means.

    Attributes:
        stages: patterns, applied one after the other.
        ignore_merges: a word that is a token is that token, whatever the merges would make of it.
        clean_spaces: decoded text loses the spaces before ".", "?", "!", ",", "'s" and the like.
        add_bos: whether a start token is added where the file does not say.
    """

    stages: tuple[str, ...]
    ignore_merges: bool = False
    clean_spaces: bool = True
    add_bos: bool = False


_LLAMA3_FAMILY = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_GPT2_FAMILY = PreTokenizer((_GPT2,))
_QWEN2_FAMILY = PreTokenizer((_QWEN2,), clean_spaces=False)
_GPT4O_FAMILY = PreTokenizer((_GPT4O,), clean_spaces=False)
_DEEPSEEK3_FAMILY = PreTokenizer(_DEEPSEEK3, clean_spaces=False)
_BAILING_FAMILY = PreTokenizer((_BAILING,), clean_spaces=False)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
        _LLAMA3_FAMILY,
    ),
    **dict.fromkeys(
        (
            "gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code",
            "roberta-bpe", "a.x-4.0", "mellum", "modern-bert", "mpt", "olmo", "jais", "exaone4",
        ),
        _GPT2_FAMILY,
    ),
    **dict.fromkeys(("trillion", "granite-docling"), PreTokenizer((_GPT2,), clean_spaces=False)),
    **dict.fromkeys(
        ("starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"), PreTokenizer(_DIGITS_GPT2)
    ),
    **dict.fromkeys(("command-r", "smollm"), PreTokenizer(_DIGITS_GPT2, clean_spaces=False)),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "grok-2", "solar-open"), _QWEN2_FAMILY
    ),
    **dict.fromkeys(("stablelm2", "megrez"), PreTokenizer((_QWEN2,))),
    "qwen35": PreTokenizer((_QWEN35,), clean_spaces=False),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), PreTokenizer((_LLAMA3,))),
    **dict.fromkeys(("glm4", "glm5"), PreTokenizer((_LLAMA3,), ignore_merges=True)),
    "deepseek-llm": PreTokenizer(_DEEPSEEK_LLM, clean_spaces=False),
    "deepseek-coder": PreTokenizer(_DEEPSEEK_CODER, clean_spaces=False),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"), _DEEPSEEK3_FAMILY),
    "falcon": PreTokenizer(_FALCON),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, clean_spaces=False, add_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O_FAMILY),
    "granite-embed-multi-97m": PreTokenizer((_GPT4O,), ignore_merges=True, clean_spaces=False),
    "kimi-k2": PreTokenizer((_KIMI_K2,), clean_spaces=False),
    **dict.fromkeys(("bloom", "gpt3-finnish"), PreTokenizer((_BLOOM,))),
    "poro-chat": PreTokenizer((_BLOOM,), clean_spaces=False),
    "viking": PreTokenizer((_BLOOM, r"\p{N}"), clean_spaces=False),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING_FAMILY),
    "seed-coder": PreTokenizer((_SEED_CODER,), clean_spaces=False),
    "exaone-moe": PreTokenizer((_EXAONE_MOE,)),
    "jais-2": PreTokenizer((_JAIS2,)),
    "youtu": PreTokenizer(_YOUTU, ignore_merges=True, clean_spaces=False),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _LLAMA3.replace("{1,3}", "+")), ignore_merges=True),
    "ufakzeka": PreTokenizer((_QWEN2.removeprefix(f"{_CONTRACTIONS}|"),), clean_spaces=False),
    "laguna": PreTokenizer((_LINES, _QWEN2), clean_spaces=False),
}  # fmt: skip
"""By the value of `tokenizer.ggml.pre`, for vocabularies of bytes (`tokenizer.ggml.model` = gpt2)."""

SPACE_MARK_PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    **dict.fromkeys(("gemma4", "granite-embed-multi-311m"), PreTokenizer((_LINES,), add_bos=True)),
    "sarvam-moe": PreTokenizer((_LINES,), clean_spaces=False),
}
"""The same for vocabularies of characters, with U+2581 for a space and <0xXX> for bytes."""
