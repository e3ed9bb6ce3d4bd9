"""Templates for models that bring none.

Used by `template`.
"""

from __future__ import annotations

# Source: openai/openai-python, chatml.md.
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CHATML_TOKENS = ("<|im_start|>", "<|im_end|>")

# A base model goes on with a text: a reply follows what it replies to directly, a new paragraph begins each turn.
PLAIN = (
    "{% for message in messages %}{% if not loop.first and message['role'] != 'assistant' %}{{ '\\n\\n' }}{% endif %}"
    "{{ message['content'] }}{% endfor %}"
)
