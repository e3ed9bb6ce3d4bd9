"""Chat templates are rendered as the field does."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import jinja2
import jinja2.sandbox
import pytest
from jinja2.ext import loopcontrols

from engine.chat import ChatTemplate, Message
from engine.errors import ChatTemplateError
from engine.gguf import open_gguf
from engine.tokenizer import load_tokenizer
from tests.engine.tokenizer.support import FOREIGN_NAMES, craft, craft_bpe, vocab_folder
from tests.models import QWEN2, SMOLLM2, real_model

HELLO: list[Message] = [{"role": "user", "content": "Hi"}]
TALK: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Hi\n"},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": "Bye"},
]


def reference(source: str, **context: object) -> str:
    """What plain Jinja makes of it, with the environment that transformers has."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(value: object, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment.filters["tojson"] = tojson
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": datetime.now().strftime}
    return environment.from_string(source).render(**context)


SOURCES = [
    "{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}",
    "{% for m in messages %}{% if loop.first %}[{% endif %}{{ loop.index0 }}/{{ loop.length }}{% if loop.last %}]{% endif %}"
    "{{ loop.previtem.role if loop.previtem is defined else '-' }}{% endfor %}",
    "{% set ns = namespace(text='') %}{% for m in messages %}{% set ns.text = ns.text ~ m.content %}{% endfor %}{{ ns.text }}",
    "{% macro show(m, n=2) %}{{ m.content * n }}{% endmacro %}{% for m in messages %}{{ show(m) }}{% endfor %}",
    "{% for m in messages[1:] if m.role != 'assistant' %}{{ m.content.strip() + '|' }}{% else %}none{% endfor %}",
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.content }}{% break %}{% endfor %}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(', ') }}",
    "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}{{ {'a': [1, 2.5, none, true], 'é': '<'} | tojson }}",
    "{% set x = messages | map(attribute='role') | list %}{{ x }}{{ x | length }}{{ x | unique | list }}{{ 'user' in x }}",
    "{{ '%s and %d' % ('a', 3) }}{{ '{} {:>4}'.format('a', 3) }}{{ 'a,b'.split(',') }}{{ 7 // 2 }}{{ 2 ** 5 }}{{ -7 % 3 }}",
    "{{ missing }}{{ missing is defined }}{{ (missing is defined) and missing.x }}{{ bos_token }}x",
    "{% if tools %}{% for t in tools %}{{ t.function.name }}{% endfor %}{% else %}no tools{% endif %}",
    "  {% if true %}\n    kept\n  {% endif %}\n\ttail\n",
    "{%- for k, v in {'b': 1, 'a': 2} | dictsort -%} {{ k }}={{ v }} {%- endfor -%}",
    "{{ 'abc' | replace('b', 'xx') | upper | indent(2, first=true) }}{{ ['a', 'b'] | last }}{{ [3, 1, 2] | sort | string }}",
    "{% set a, b = 1, 2 %}{{ (a, b) }}{{ [a, b] + [3] }}{{ ('x' ~ a ~ b ~ 1.5 ~ none) }}{{ {'k': a}.items() | list }}",
    "{% generation %}{{ messages[-1].content }}{% endgeneration %}{{ range(3) | list }}{{ 'a' if false }}",
    "{% macro w() %}<{{ caller('x') }}>{% endmacro %}{% call(x) w() %}{{ x }}{% endcall %}{% filter upper %}a{% endfilter %}",
    "{% for i in range(2) recursive %}{{ i }}{% endfor %}{{ 'x'.join(['a', 'b']) }}{{ 'A'.lower().startswith('a') }}",
]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_as_plain_jinja(source: str) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    for add_generation_prompt in (False, True):
        for given in (None, tools):
            template = ChatTemplate(source, variables={"bos_token": "<s>"})
            want = reference(
                source.replace("{% generation %}", "").replace("{% endgeneration %}", ""),
                messages=TALK,
                tools=given,
                add_generation_prompt=add_generation_prompt,
                bos_token="<s>",
            )
            assert template.render(TALK, given, add_generation_prompt) == want


@pytest.mark.real
@pytest.mark.parametrize("name", [SMOLLM2, QWEN2])
def test_real_templates_as_plain_jinja(name: str) -> None:
    with open_gguf(real_model(name)) as gguf:
        tokenizer = load_tokenizer(gguf)
        template = ChatTemplate.from_gguf(gguf, tokenizer)
    assert template.kind == "file"
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    for messages in (HELLO, TALK, TALK[1:]):
        for tools in (None, [tool]):
            for add_generation_prompt in (False, True):
                context = {"tools": tools, "add_generation_prompt": add_generation_prompt, **template.variables}
                want = reference(template.source, messages=messages, **context)
                assert template.render(messages, tools, add_generation_prompt) == want


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_templates_of_foreign_vocabularies(name: str) -> None:
    with open_gguf(vocab_folder(name) / "vocab.gguf") as gguf:
        tokenizer = load_tokenizer(gguf)
        template = ChatTemplate.from_gguf(gguf, tokenizer)
    assert "Hi" in template.render(HELLO)
    if template.kind == "file":
        want = reference(template.source, messages=HELLO, add_generation_prompt=True, **template.variables)
        assert template.render(HELLO) == want
        assert template.encode(tokenizer, TALK[1:])


def test_refusal_and_time() -> None:
    template = ChatTemplate("{{ raise_exception('Roles must alternate') }}")
    with pytest.raises(ChatTemplateError, match="chat template: Roles must alternate"):
        template.render(HELLO)
    assert ChatTemplate("{{ strftime_now('%Y') }}").render([]) == str(datetime.now().year)


FAULTY = [
    "{% if %}", "{{ 1 + }}", "{% for m in messages %}", "{{ x | no_such_filter }}", "{% no_such_tag %}", "{{ " + "(" * 5000,
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{{ messages.append(1) }}",
    "{{ messages[0].update({'a': 1}) }}", "{{ ''.__class__.__mro__ }}", "{{ self.__init__.x }}", "{{ (1).__add__(2) }}",
    "{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ none.x.y }}", "{{ {}['a']['b'] }}", "{{ missing() }}", "{{ lipsum() }}",
    "{{ messages | map('no_such_filter') | list }}", "{{ 'a' | pprint }}", "{{ ''.encode() }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
]  # fmt: skip


@pytest.mark.parametrize("source", FAULTY)
def test_what_does_not_work_is_one_kind_of_error(source: str) -> None:
    with pytest.raises(ChatTemplateError) as error:
        ChatTemplate(source).render(HELLO)
    assert len(str(error.value)) < 400


def test_check_compiles_only() -> None:
    ChatTemplate("{{ raise_exception('no') }}").check()
    with pytest.raises(ChatTemplateError, match="line 2: "):
        ChatTemplate("a\n{% if %}").check()


def test_a_model_without_a_template(tmp_path: Path) -> None:
    for specials, kind in ((("<|im_start|>", "<|im_end|>"), "chatml"), (("<|endoftext|>",), "plain")):
        with open_gguf(craft_bpe(tmp_path / f"{kind}.gguf", specials=specials)) as gguf:
            template = ChatTemplate.from_gguf(gguf, load_tokenizer(gguf))
        assert template.kind == kind
        chatml = (
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi\n<|im_end|>\n"
            "<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
        )
        assert template.render(TALK) == (chatml if kind == "chatml" else "Be brief.\n\n Hi\nHello!\n\nBye")


def test_named_templates(tmp_path: Path) -> None:
    path = craft_bpe(tmp_path / "vocab.gguf")
    with open_gguf(path) as gguf:
        values = {key: value for key, value in gguf.metadata.items() if key.startswith("tokenizer.")}
    values |= {"tokenizer.chat_template": "plain", "tokenizer.chat_template.tool_use": "{{ tools[0].name }}"}
    with open_gguf(craft(tmp_path / "named.gguf", dict(values))) as gguf:
        template = ChatTemplate.from_gguf(gguf, load_tokenizer(gguf))
    assert template.kind == "file"
    assert template.render(HELLO) == "plain"
    assert template.render(HELLO, tools=[{"name": "f"}]) == "f"
