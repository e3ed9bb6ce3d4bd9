"""A hostile template is stopped within about a second, and before it fills the memory."""

from __future__ import annotations

import resource
import time

import pytest

from engine.chat import ChatTemplate
from engine.errors import ChatTemplateError

DOUBLING = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}{{ USE }}"


def doubling(start: str, step: str, use: str = "ns.x") -> str:
    return DOUBLING.replace("START", start).replace("STEP", step).replace("USE", use)


HOSTILE = {
    "long range": "{% for i in range(10 ** 9) %}x{% endfor %}",
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "nested loops that write": "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
    "deep loops": "{% for a in 'xxxxxxxxxx' %}" * 12 + "{% endfor %}" * 12,
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "text times number": "{{ 'a' * 10 ** 9 }}",
    "number times text": "{{ 10 ** 9 * 'a' }}",
    "list times number": "{{ ([0] * 10 ** 9) | length }}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "power of powers": doubling("2", "ns.x * ns.x", "ns.x > 1"),
    "text doubled by +": doubling("'a'", "ns.x + ns.x"),
    "text doubled by ~": doubling("'a'", "ns.x ~ ns.x"),
    "text doubled by join": doubling("'a'", "[ns.x, ns.x] | join"),
    "text doubled by its join": doubling("'a'", "ns.x.join(['', ns.x, ns.x])"),
    "text doubled by format": doubling("'a'", "'%s%s' % (ns.x, ns.x)"),
    "text doubled by its format": doubling("'a'", "'{0}{0}'.format(ns.x)"),
    "text squared by replace": doubling("'aa'", "ns.x.replace('a', ns.x)"),
    "text squared by replace filter": doubling("'aa'", "ns.x | replace('a', ns.x)"),
    "list doubled by +": doubling("[1]", "ns.x + ns.x", "ns.x | length"),
    "list of lists": doubling("[1]", "[ns.x, ns.x]"),
    "list of lists compared": doubling("[1]", "[ns.x, ns.x]", "ns.x == 1"),
    "list of lists as json": doubling("[1]", "[ns.x, ns.x]", "ns.x | tojson"),
    "dict of dicts": doubling("{}", "{'a': ns.x, 'b': ns.x}"),
    "dict() of dicts": doubling("{}", "dict(a=ns.x, b=ns.x)"),
    "tuple of tuples": doubling("()", "(ns.x, ns.x)", "ns.x | string"),
    "namespace in itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "namespace in a list": "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}",
    "namespaces in namespaces": doubling("1", "namespace(a=ns.x, b=ns.x)"),
    "center": "{{ 'a' | center(10 ** 9) }}",
    "constant center": "{{ 'a' | center(1000000000) }}",
    "its center": "{{ 'a'.center(10 ** 9) }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "expandtabs": "{{ ('\t' * 99999).expandtabs(99999) }}",
    "indent": "{{ ('\n' * 999999) | indent(99999) }}",
    "format width": "{{ '%1000000000d' % 1 }}",
    "format star": "{{ '%*d' % (1000000000, 1) }}",
    "its format width": "{{ '{:1000000000}'.format(1) }}",
    "its nested format width": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format of many fields": "{{ ('{0}' * 999999).format('x' * 3999999) }}",
    "percent of many fields": "{{ ('%(a)s' * 99999) % {'a': 'x' * 3999999} }}",
    "json separators": "{{ (range(99999) | list) | tojson(separators=('x' * 3999999, '')) }}",
    "searched in a straight line": "{% set x = range(99999) | list %}" + "{% if -1 in x %}{% endif %}" * 2000,
    "tested in a straight line": "{% set x = range(99999) | list %}" + "{% if -1 is in x %}{% endif %}" * 2000,
    "written in a straight line": "{% set x = range(99999) | list %}{% set y %}" + "{{ x }}" * 2000 + "{% endset %}",
    "cut in a straight line": "{% set x = range(99999) | list %}" + "{% set y = x[1:] %}" * 2000,
    "deep list": "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = (ns.x, 1) %}{% endfor %}{{ {ns.x: 1} }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "mapped center": "{{ ['a'] | map('center', 1000000000) | list }}",
    "batch": "{{ [1] | batch(1000000000, 'x') | list }}",
    "round": "{{ 1.5 | round(1000000000, 'floor') }}",
    "json indent": "{{ [1, [2]] | tojson(indent=1000000000) }}",
    "many large values": "{% set a = 'x' * 3999999 %}" + "{% for i in range(9999) %}{% set b = a + 'y' %}{% endfor %}",
    "large text written often": "{% set a = 'x' * 3999999 %}{% for i in range(99999) %}{{ a }}{% endfor %}",
    "large text written often in a macro": "{% set a = 'x' * 3999999 %}{% macro f() %}{% for i in range(99999) %}{{ a }}"
    "{% endfor %}{% endmacro %}{{ f() | length }}",
    "large text set often": "{% set a = 'x' * 3999999 %}{% set b %}{% for i in range(99999) %}{{ a }}{% endfor %}{% endset %}",
    "list of a large text": "{% set a = 'x' * 3999999 %}{{ [a, a, a] | length }}",
    "sum of lists": "{{ [[1]] | sum(start=[]) }}",
    "long date": "{{ strftime_now('%Y' * 9999) }}",
    "wide date": "{{ strftime_now('%999999999Y') }}",
    "cycler": "{% set c = cycler('a', 'b') %}{% for i in range(9999) %}{% for j in range(9999) %}{{ c.next() }}{% endfor %}{% endfor %}",
    "endless filter": "{{ range(99999) | map('list') | list }}",
    "products of ranges": "{% for i in range(9999) %}{{ range(99999) | map('string') | join | length }}{% endfor %}",
    "sorted again and again": "{% for i in range(9999) %}{{ range(99999) | sort | length }}{% endfor %}",
    "searched again and again": "{% set x = range(99999) | list %}{% for i in x %}{{ -1 in x }}{% endfor %}",
}  # fmt: skip


def test_time_is_up_after_a_second() -> None:
    began = time.thread_time()
    with pytest.raises(ChatTemplateError, match="it takes longer than 1 s"):
        ChatTemplate(HOSTILE["nested loops"]).render([])
    assert 0.9 < time.thread_time() - began < 1.5


@pytest.mark.parametrize("name", list(HOSTILE))
def test_it_is_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.chat.meter.MAX_SECONDS", 0.1)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.thread_time()
    with pytest.raises(ChatTemplateError):
        ChatTemplate(HOSTILE[name]).render([{"role": "user", "content": "Hi"}])
    assert time.thread_time() - began < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 700_000


def test_a_source_without_end() -> None:
    with pytest.raises(ChatTemplateError, match="long"):
        ChatTemplate("x" * 600_000).render([])
    with pytest.raises(ChatTemplateError):
        ChatTemplate("{% if a %}" * 3000 + "{% endif %}" * 3000).render([])


def test_messages_without_end() -> None:
    with pytest.raises(ChatTemplateError, match="more than"):
        ChatTemplate("{{ messages | length }}").render([{"role": "user", "content": "x" * 5_000_000}])


def test_a_long_conversation_is_no_attack() -> None:
    source = (
        "{% set ns = namespace(n=0, all='') %}{% for m in messages %}{% if loop.index0 < messages | length - 1 %}"
        "{% set ns.n = ns.n + 1 %}{% endif %}{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>\\n' }}{% endfor %}{{ ns.n }}"
    )
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": f" {i} " * 100} for i in range(1500)]
    began = time.thread_time()
    assert ChatTemplate(source).render(messages).endswith("1499")
    assert time.thread_time() - began < 0.5
