"""The Jinja environment of chat templates: immutable, sandboxed, and metered at every step.

Used by `template`. Source: huggingface/transformers, utils/chat_template_utils.py, `_compile_jinja_template`, for what
a template may use: trim_blocks, lstrip_blocks, loop controls, `{% generation %}`, raise_exception, strftime_now.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from engine.chat import operations
from engine.chat.meter import TemplateNamespace, current_meter

_LOOP, _CONCAT, _VALUE, _STEP = "_counted_loop", "_counted_concat", "_counted_value", "_counted_step"


class _Counting(NodeTransformer):
    """Puts a counting filter around all that a template loops over, joins, builds, compares or tests."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _LOOP)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(nodes.Tuple(node.nodes, "load", lineno=node.lineno), _CONCAT)

    def visit_List(self, node: nodes.List) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(node, _VALUE)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(node, _VALUE)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(node, _STEP)

    def visit_Test(self, node: nodes.Test) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(node, _STEP)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered(node, _VALUE) if isinstance(node.arg, nodes.Slice) else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return _filtered(node, _VALUE) if node.ctx == "load" else node


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(cast(nodes.Expr, node), name, [], [], None, None, lineno=node.lineno)


class _CountingCodeGenerator(CodeGenerator):
    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        super().visit_Template(cast(nodes.Template, _Counting().visit(node)), frame)


class _Generation(Extension):
    """`{% generation %}`: marks what the assistant says, for training; here it only writes its body."""

    tags = {"generation"}  # noqa: RUF012 (as the base class declares it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles chat templates; what it compiles runs under `current_meter`."""

    code_generator_class = _CountingCodeGenerator
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(operations.join_texts)

    def __init__(self) -> None:
        # Without the optimizer nothing of a template is computed while it is compiled.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            cache_size=0,
            finalize=_finalize,
            extensions=[_Generation, loopcontrols],
        )
        self.filters = {name: _counted(name, function) for name, function in operations.safe_filters(self).items()}
        self.filters[_LOOP] = _loop
        self.filters[_CONCAT] = operations.join_texts
        self.filters[_VALUE] = _value
        self.filters[_STEP] = _step
        self.globals = {name: self.globals[name] for name in ("range", "dict", "joiner", "cycler")}
        self.globals.update(
            namespace=TemplateNamespace,
            raise_exception=operations.raise_exception,
            strftime_now=operations.strftime_now,
        )

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Compute `left operator right`, after a look at how much that makes."""
        if operator == "*":
            operations.check_product(left, right)
        elif operator == "**":
            operations.check_power(left, right)
        elif operator == "%":
            operations.check_format(left, right)
        return current_meter.get().checked(super().call_binop(context, operator, left, right))

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        """Whether a template may touch that attribute."""
        if isinstance(obj, str):
            return attr in operations.STRING_METHODS
        if isinstance(obj, bytes | int | float):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call(self, __context: Context, __obj: object, *args: object, **kwargs: object) -> object:
        """Call something for a template, after a look at how much that makes."""
        meter = current_meter.get()
        meter.step()
        # What a sandboxed `format` wraps is the text's own method.
        method = getattr(__obj, "__wrapped__", __obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            args = operations.check_string_call(owner, getattr(method, "__name__", ""), args, kwargs)
        return meter.checked(super().call(__context, __obj, *args, **kwargs))


def _loop(iterable: Iterable[object]) -> Iterator[object]:
    return current_meter.get().items(iterable)


def _value(value: object) -> object:
    return current_meter.get().checked(value)


def _step(value: object) -> object:
    current_meter.get().step()
    return value


def _finalize(value: object) -> object:
    """What is written out: a namespace is measured first, everything else was when it was made."""
    meter = current_meter.get()
    meter.step()
    return meter.checked(value) if isinstance(value, TemplateNamespace) else value


def _counted(name: str, function: Callable[..., object]) -> Callable[..., object]:
    """A filter whose arguments and result are counted."""

    @functools.wraps(function)
    def counted(*args: object, **kwargs: object) -> object:
        meter = current_meter.get()
        meter.step()
        for argument in args:
            if isinstance(argument, TemplateNamespace):
                meter.checked(argument)
        if name in operations.COUNTED_FILTERS:
            operations.check_arguments([*args[1:], *kwargs.values()])
        return meter.checked(function(*args, **kwargs))

    return counted
