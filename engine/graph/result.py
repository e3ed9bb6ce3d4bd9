"""What a built graph offers, and its canonical text (the snapshot)."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass

from engine.graph.tensor import Op, Symbol, Tensor, in_order


@dataclass(frozen=True, slots=True)
class GraphResult:
    """The roots of a graph.

    Attributes:
        logits: f32[n_outputs, n_vocab], or None for a graph without an output head.
        embd: f32[n_outputs, n_embd]: the final hidden rows.
        nodes: every named node, in the order in which they were named, for traces.
        stores: what an encoder stores for its decoder; nothing else of the graph reads them.
    """

    logits: Tensor | None
    embd: Tensor | None
    nodes: tuple[Tensor, ...] = ()
    stores: tuple[Tensor, ...] = ()

    def roots(self) -> list[Tensor]:
        """The tensors that a backend must compute."""
        return [t for t in (self.embd, self.logits, *self.stores) if t is not None]


def graph_text(result: GraphResult) -> str:
    """The graph as canonical text, one line a node: stable over runs, no addresses.

    Example line: ``%12 attn_norm-1 = rms_norm(%11, blk.1.attn_norm.weight) eps=1e-05 : [n_tokens, 64]``
    """
    names: dict[int, str] = {}
    lines: list[str] = []
    for node in in_order(result.roots()):
        if node.op in (Op.WEIGHT, Op.INPUT):
            names[id(node)] = node.name
            continue
        names[id(node)] = f"%{len(lines)}"
        sources = ", ".join(names[id(s)] for s in node.src)
        attrs = "".join(f" {key}={_attr_text(value)}" for key, value in sorted(node.attrs.items()))
        shape = ", ".join(d.value if isinstance(d, Symbol) else str(d) for d in node.shape)
        label = f" {node.name}" if node.name else ""
        lines.append(f"%{len(lines)}{label} = {node.op.value}({sources}){attrs} : [{shape}]")
    for label, root in (("embd", result.embd), ("logits", result.logits)):
        if root is not None:
            lines.append(f"{label} = {names[id(root)]}")
    return "\n".join(lines) + "\n"


def _attr_text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    if is_dataclass(value):
        said = [(f.name, getattr(value, f.name)) for f in fields(value)]
        return "(" + ", ".join(f"{name}={_attr_text(part)}" for name, part in said if part != ()) + ")"
    return str(value)
