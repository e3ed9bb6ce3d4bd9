"""`GraphBuilder`: the graph interface's one implementation, for one model, memory and set of adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.errors import TensorMissingError, UnsupportedCallError
from engine.graph import ops
from engine.graph.interface import GraphType
from engine.graph.result import GraphResult
from engine.graph.tensor import AttnSpec, Attr, Op, RopeSpec, Symbol, Tensor, WeightInfo


@dataclass(frozen=True, slots=True)
class LoraPair:
    """One adapter's pair for one weight: names of A [rank, n_in] and B [n_out, rank], and the effective scale."""

    a: str
    b: str
    scale: float


@dataclass(frozen=True, slots=True)
class Topology:
    """What makes two graphs of one context differ; the key of its compiled plans.

    Attributes:
        graph_type: which graph.
        embd_input: embeddings come in instead of tokens.
        want_embd, want_logits: what goes out.
        lora: active pairs by weight.
        cvec: names of the active control vectors by layer.
        causal: the tokens see only what is before them.
        stores_source: an encoder keeps what its decoder attends to.
        trace: keep every node readable.
    """

    graph_type: GraphType = GraphType.DEFAULT
    embd_input: bool = False
    want_embd: bool = False
    want_logits: bool = True
    lora: tuple[tuple[str, tuple[LoraPair, ...]], ...] = ()
    cvec: tuple[tuple[int, tuple[str, ...]], ...] = ()
    causal: bool = True
    stores_source: bool = False
    trace: bool = False


class GraphBuilder:
    """Builds one graph.

    Args:
        weights: what the file has (and the adapters), by name.
        n_embd: width of the model.
        topology: which graph.
        cache_of: the cache that holds a layer.
        kind: the context kind's name, for error messages.
    """

    def __init__(
        self,
        weights: Mapping[str, WeightInfo],
        n_embd: int,
        topology: Topology,
        cache_of: Callable[[int], int],
        kind: str,
        rope_factors: Callable[[int], str],
    ) -> None:
        self._weights, self._n_embd, self._topology = weights, n_embd, topology
        self._cache_of, self._kind, self._rope_factors = cache_of, kind, rope_factors
        self._lora = dict(topology.lora)
        self._cvec = dict(topology.cvec)
        self._adapted: set[str] = set()
        self._made: dict[str, Tensor] = {}
        self._stores: dict[int, Tensor] = {}
        self._source_stores: list[Tensor] = []
        self._nodes: list[Tensor] = []

    def get_type(self) -> GraphType:
        """Which graph is asked for."""
        return self._topology.graph_type

    def weight(self, name: str) -> Tensor:
        """The weight of that name. Raises: TensorMissingError."""
        found = self.weight_or_none(name)
        if found is None:
            raise TensorMissingError(name)
        return found

    def weight_or_none(self, name: str) -> Tensor | None:
        """The weight of that name, or None."""
        info = self._weights.get(name)
        if info is None:
            return None
        if name not in self._made:
            self._made[name] = Tensor(Op.WEIGHT, info.shape, name=name, quant=info.quant)
        return self._made[name]

    def weight_row(self, name: str, row: int) -> Tensor:
        """One row of a matrix as a vector; its name is `name[row]`."""
        whole = self.weight(name)
        key = f"{name}[{row}]"
        if key not in self._made:
            self._made[key] = Tensor(Op.WEIGHT, whole.shape[1:], name=key, quant=whole.quant)
        return self._made[key]

    def build_inp(self, kind: str) -> Tensor:
        """An input of that kind. Raises: UnsupportedCallError."""
        if kind == "embd":
            if self._topology.embd_input:
                return self._input("embd", (Symbol.N_TOKENS, self._n_embd))
            return ops.get_rows(self.weight("token_embd.weight"), self._input("tokens", (Symbol.N_TOKENS,)))
        if kind == "pos":
            return self._input("pos", (Symbol.N_TOKENS,))
        if kind == "out_ids":
            return self._input("out_ids", (Symbol.N_OUTPUTS,))
        raise UnsupportedCallError(f"build_inp({kind!r})", self._kind)

    def build_inp_rows(self, name: str) -> Tensor:
        """The tokens' rows of a matrix, or its row 0 where there are none."""
        if self._topology.embd_input:
            return self.weight_row(name, 0)
        return ops.get_rows(self.weight(name), self._input("tokens", (Symbol.N_TOKENS,)))

    def _input(self, name: str, shape: tuple[int | Symbol, ...]) -> Tensor:
        if name not in self._made:
            self._made[name] = Tensor(Op.INPUT, shape, name=name)
        return self._made[name]

    def build_cb(self, cur: Tensor, name: str, il: int = -1) -> Tensor:
        """Name a node."""
        if cur.op not in (Op.WEIGHT, Op.INPUT):
            cur.name = f"{name}-{il}" if il >= 0 else name
            self._nodes.append(cur)
        return cur

    def build_lora_mm(self, weight: Tensor, cur: Tensor, bias: Tensor | None = None) -> Tensor:
        """The product, and B(Ax) of every active adapter of this weight."""
        out = ops.mul_mat(weight, cur, bias)
        self._adapted.add(weight.name)
        for pair in self._lora.get(weight.name, ()):
            low = ops.mul_mat(self.weight(pair.a), cur)
            out = ops.add(out, ops.scale(ops.mul_mat(self.weight(pair.b), low), pair.scale))
        return out

    def build_rope_factors(self, il: int) -> Tensor | None:
        """The frequency factors of a layer, where the file has them."""
        name = self._rope_factors(il)
        return self.weight_or_none(name) if name else None

    def build_attn(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        spec: AttnSpec,
        rope: RopeSpec,
        sinks: Tensor | None,
        rel_bias: Tensor | None = None,
    ) -> Tensor:
        """Store k and v in the layer's cache and attend with q."""
        attrs: dict[str, Attr] = {"attn": self._attn_spec(spec, rope)}
        if rel_bias is not None:
            attrs["has_later"] = int(not spec.causal)
        store = self._stores[spec.il] = self._store(k, v, self._attn_spec(spec, rope))
        extras = tuple(t for t in (sinks, rel_bias) if t is not None)
        return Tensor(Op.ATTN, (q.shape[0], spec.n_head * spec.d_v), (q, store, *extras), attrs)

    @staticmethod
    def _store(k: Tensor, v: Tensor, spec: AttnSpec) -> Tensor:
        return Tensor(Op.STORE_KV, k.shape, (k, v), {"attn": spec}, f"store_kv-{spec.il}")

    def build_attn_shared(self, q: Tensor, spec: AttnSpec, rope: RopeSpec) -> Tensor:
        """Attend with q to the cells of an earlier layer."""
        shape = (q.shape[0], spec.n_head * spec.d_v)
        return Tensor(Op.ATTN, shape, (q, self._stores[spec.il]), {"attn": self._attn_spec(spec, rope)})

    def _attn_spec(self, spec: AttnSpec, rope: RopeSpec) -> AttnSpec:
        """The specification with what the memory and the topology know."""
        return replace(spec, cache=self._cache_of(spec.il), causal=spec.causal and self._topology.causal, rope=rope)

    def build_attn_cross(self, q: Tensor, spec: AttnSpec) -> Tensor:
        """Attend with q to the sequence's source. Raises: UnsupportedCallError: on a context that has none."""
        if self._topology.graph_type is not GraphType.DECODER:
            raise UnsupportedCallError("build_attn_cross", f"{self._kind}: an encoder-decoder needs ContextEncDec")
        shape = (q.shape[0], spec.n_head * spec.d_v)
        return Tensor(Op.ATTN_CROSS, shape, (q,), {"attn": replace(spec, cache=self._cache_of(spec.il), causal=False)})

    def build_store_cross(self, k: Tensor, v: Tensor, spec: AttnSpec) -> None:
        """Store k and v in the cache of sources, where this encoder has one."""
        if self._topology.stores_source:
            self._source_stores.append(self._store(k, v, replace(spec, cache=self._cache_of(spec.il))))

    def build_cvec(self, cur: Tensor, il: int) -> Tensor:
        """Add the control vectors of a layer."""
        self._adapted.add(f"layer {il}")
        for name in self._cvec.get(il, ()):
            cur = ops.add(cur, self.weight(name))
        return cur

    def unused_adapters(self) -> list[str]:
        """After the graph was built: what adapters change and it uses, but where it did not let them in.

        A weight that this graph does not use at all belongs to the model's other half.
        """
        loras = [name for name in self._lora if name in self._made and name not in self._adapted]
        return loras + [name for il in self._cvec if (name := f"layer {il}") not in self._adapted]

    def build_out(self, cur: Tensor) -> Tensor:
        """The rows whose results are asked for."""
        return ops.gather(cur, self.build_inp("out_ids"))

    def result(self, *, embd: Tensor | None = None, logits: Tensor | None = None) -> GraphResult:
        """The graph, with only the roots that are wanted."""
        return GraphResult(
            logits if self._topology.want_logits else None,
            embd if self._topology.want_embd or logits is None else None,
            tuple(self._nodes),
            tuple(self._source_stores),
        )
