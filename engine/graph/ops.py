"""The operations of the graph as functions: they check shapes and make a tensor.

Whatever needs to know the context or the memory is not here but on `GraphI`.
"""

from __future__ import annotations

from engine.graph.tensor import Dim, Op, RopeSpec, Symbol, Tensor

ACTIVATIONS = ("silu", "gelu", "gelu_erf", "gelu_quick", "relu", "relu_sqr", "sigmoid", "tanh", "softplus", "exp")


def _same(a: Tensor, b: Tensor, what: str) -> None:
    if a.shape[0] != b.shape[0] or a.n_row != b.n_row:
        raise ValueError(f"{what}: shapes {a.shape} and {b.shape} differ")


def get_rows(weight: Tensor, ids: Tensor) -> Tensor:
    """Rows of an embedding matrix: weight [n, n_embd], ids i32[rows] -> f32[rows, n_embd]."""
    return Tensor(Op.GET_ROWS, (ids.shape[0], weight.shape[1]), (weight, ids))


def gather(x: Tensor, ids: Tensor) -> Tensor:
    """Rows of an activation: x f32[n_tokens, ...], ids i32[n_outputs] -> f32[n_outputs, ...]."""
    return Tensor(Op.GATHER, (ids.shape[0], *x.shape[1:]), (x, ids))


def mul_mat(weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """x f32[rows, n_in] times weight [n_out, n_in] transposed, plus bias f32[n_out] -> f32[rows, n_out]."""
    n_out, n_in = weight.shape
    if x.n_row != n_in:
        raise ValueError(f"mul_mat: {weight.name} takes rows of {n_in}, got {x.n_row}")
    if bias is not None and bias.shape != (n_out,):
        raise ValueError(f"mul_mat: bias {bias.name} has shape {bias.shape}, expected {(n_out,)}")
    return Tensor(Op.MUL_MAT, (x.shape[0], n_out), (weight, x) if bias is None else (weight, x, bias))


def add(x: Tensor, y: Tensor) -> Tensor:
    """x + y; y has x's shape, or is a weight vector added to every row."""
    if y.op is not Op.WEIGHT:
        _same(x, y, "add")
    elif y.shape != (x.n_row,):
        raise ValueError(f"add: {y.name} has shape {y.shape}, rows have {x.n_row}")
    return Tensor(Op.ADD, x.shape, (x, y))


def mul(x: Tensor, y: Tensor) -> Tensor:
    """x * y value by value; y has x's shape, or is a weight vector or a single weight, or has one value a row."""
    if y.op is not Op.WEIGHT and y.n_row != 1:
        _same(x, y, "mul")
    elif y.op is Op.WEIGHT and y.shape not in ((x.n_row,), (1,)):
        raise ValueError(f"mul: {y.name} has shape {y.shape}, rows have {x.n_row}")
    return Tensor(Op.MUL, x.shape, (x, y))


def scale(x: Tensor, factor: float) -> Tensor:
    """x * factor."""
    return x if factor == 1.0 else Tensor(Op.SCALE, x.shape, (x,), {"factor": float(factor)})


def unary(x: Tensor, activation: str) -> Tensor:
    """activation(x), one of `ACTIVATIONS`."""
    assert activation in ACTIVATIONS, activation
    return Tensor(Op.UNARY, x.shape, (x,), {"activation": activation})


def glu(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    """activation(gate) * up; "oai" is gpt-oss's own gate. Source: arXiv:2002.05202."""
    assert activation in (*ACTIVATIONS, "oai"), activation
    _same(gate, up, "glu")
    return Tensor(Op.GLU, gate.shape, (gate, up), {"activation": activation})


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis. Source: arXiv:1910.07467."""
    if weight is not None and weight.shape != (x.shape[-1],):
        raise ValueError(f"rms_norm: {weight.name} has shape {weight.shape}, the last axis has {x.shape[-1]}")
    return Tensor(Op.RMS_NORM, x.shape, (x,) if weight is None else (x, weight), {"eps": float(eps)})


def l2_norm(x: Tensor, eps: float) -> Tensor:
    """x / sqrt(sum(x^2) + eps) over the last axis."""
    n = x.shape[-1]
    assert isinstance(n, int)
    return scale(rms_norm(x, None, eps / n), n**-0.5)


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis. Source: arXiv:1607.06450."""
    if weight is None and bias is not None:
        raise ValueError("layer_norm: a bias needs a weight")
    src = tuple(t for t in (x, weight, bias) if t is not None)
    return Tensor(Op.LAYER_NORM, x.shape, src, {"eps": float(eps)})


def softcap(x: Tensor, cap: float) -> Tensor:
    """cap * tanh(x / cap)."""
    return Tensor(Op.SOFTCAP, x.shape, (x,), {"cap": float(cap)})


def rope(x: Tensor, pos: Tensor, spec: RopeSpec, factors: Tensor | None = None) -> Tensor:
    """Rotate the heads of x f32[rows, n_head, d] by their positions i32[rows]; factors f32[n_rot / 2] divide freqs."""
    if spec.kind == "none":
        return x
    if len(x.shape) != 3 or not isinstance(x.shape[2], int) or spec.n_rot > x.shape[2] or spec.n_rot % 2:
        raise ValueError(f"rope: n_rot {spec.n_rot} does not fit heads of shape {x.shape}")
    return Tensor(Op.ROPE, x.shape, (x, pos) if factors is None else (x, pos, factors), {"rope": spec})


def clamp(x: Tensor, limit: float) -> Tensor:
    """x limited to [-limit, limit]."""
    return Tensor(Op.CLAMP, x.shape, (x,), {"cap": float(limit)})


def scale_pos(x: Tensor, n_step: int, factor: float, offset: int) -> Tensor:
    """x * (log(floor((pos + offset) / n_step) + 1) * factor + 1): queries sharpen as the context grows."""
    if n_step < 1:
        raise ValueError(f"scale_pos: n_step {n_step}")
    return Tensor(Op.SCALE_POS, x.shape, (x,), {"n_step": int(n_step), "factor": float(factor), "offset": int(offset)})


def xielu(x: Tensor, alpha_n: float, alpha_p: float, beta: float, eps: float) -> Tensor:
    """The trainable activation xIELU with the parameters of one layer. Source: arXiv:2411.13010."""
    return Tensor(Op.XIELU, x.shape, (x,), {"alpha_n": alpha_n, "alpha_p": alpha_p, "beta": beta, "eps": eps})


def _heads(x: Tensor, what: str) -> tuple[int, int]:
    if len(x.shape) != 3 or not isinstance(x.shape[1], int) or not isinstance(x.shape[2], int):
        raise ValueError(f"{what}: {x.shape} has no heads")
    return x.shape[1], x.shape[2]


def mul_mat_heads(weight: Tensor, x: Tensor) -> Tensor:
    """Each head times its own matrix: weight [n_head, n_out, n_in], x f32[rows, n_head, n_in] -> [rows, n_head, n_out]."""
    n_head, n_out, n_in = weight.shape
    if _heads(x, "mul_mat_heads") != (n_head, n_in):
        raise ValueError(f"mul_mat_heads: {weight.name} takes heads {(n_head, n_in)}, got {x.shape}")
    return Tensor(Op.MUL_MAT_HEADS, (x.shape[0], n_head, n_out), (weight, x))


def head_columns(x: Tensor, first: int, count: int) -> Tensor:
    """Values [first, first + count) of every head of x f32[rows, n_head, d], copied together."""
    n_head, d = _heads(x, "head_columns")
    if first < 0 or first + count > d:
        raise ValueError(f"head_columns: [{first}, {first + count}) of heads of {d}")
    return Tensor(Op.HEAD_COLUMNS, (x.shape[0], n_head, count), (x,), {"first": first})


def concat_heads(x: Tensor, y: Tensor) -> Tensor:
    """x's values, then y's, in every head; one that has a single head gives it to all of the other's."""
    heads_x, d_x = _heads(x, "concat_heads")
    heads_y, d_y = _heads(y, "concat_heads")
    n_head = max(heads_x, heads_y)
    if {heads_x, heads_y} - {1, n_head}:
        raise ValueError(f"concat_heads: {x.shape} and {y.shape}")
    return Tensor(Op.CONCAT_HEADS, (x.shape[0], n_head, d_x + d_y), (x, y))


def mul_head_sum(x: Tensor, y: Tensor) -> Tensor:
    """x times the sum of y's values, head by head: both f32[rows, n_head, d]."""
    _heads(x, "mul_head_sum")
    _same(x, y, "mul_head_sum")
    return Tensor(Op.MUL_HEAD_SUM, x.shape, (x, y))


def softmax(x: Tensor) -> Tensor:
    """exp(x) / sum(exp(x)) over each row."""
    return Tensor(Op.SOFTMAX, x.shape, (x,))


def top_k(x: Tensor, n_used: int, n_group: int = 1, n_group_used: int = 1) -> Tensor:
    """Places of the n_used largest values of each row, largest first: i32[rows, n_used].

    With n_group > 1 only the n_group_used groups with the largest sum of their two best take part.
    """
    if not 1 <= n_used <= x.n_row or x.n_row % n_group:
        raise ValueError(f"top_k: {n_used} of {x.n_row} in {n_group} groups")
    return Tensor(Op.TOP_K, (x.shape[0], n_used), (x,), {"n_group": n_group, "n_group_used": n_group_used})


def pick(x: Tensor, ids: Tensor) -> Tensor:
    """The values of each row, or of a weight vector, at the places ids i32[rows, n] -> f32[rows, n]."""
    return Tensor(Op.PICK, ids.shape, (x, ids))


def div_sum(x: Tensor, least: float) -> Tensor:
    """x / max(sum(x), least) over each row."""
    return Tensor(Op.DIV_SUM, x.shape, (x,), {"least": float(least)})


def moe(
    x: Tensor, ids: Tensor, weights: Tensor, gate: Tensor | None, up: Tensor, down: Tensor, activation: str,
    biases: tuple[Tensor, ...] = (),
) -> Tensor:  # fmt: skip
    """The weighted sum of the outputs of each row's experts.

    Args:
        x: f32[rows, n_embd]; ids: i32[rows, n_used]; weights: f32[rows, n_used].
        gate, up: [n_expert, n_ff, n_embd]; gate None: activation(up) without a gate, or where `up` has 2 * n_ff rows,
            the gate's are its first half.
        down: [n_expert, n_embd, n_ff].
        biases: of gate (where there is one), up and down, f32[n_expert, ...] each, or none.
    """
    n_expert, n_up, n_embd = up.shape
    n_ff = down.shape[-1]
    assert isinstance(n_ff, int)
    fits = n_up == n_ff and gate.shape == up.shape if gate is not None else n_up in (n_ff, 2 * n_ff)
    if x.n_row != n_embd or down.shape != (n_expert, n_embd, n_ff) or not fits:
        raise ValueError(f"moe: {up.name} {up.shape} and {down.name} {down.shape} do not fit rows of {x.n_row}")
    if len(biases) not in (0, 2 + (gate is not None)):
        raise ValueError(f"moe: {len(biases)} biases")
    src = (x, ids, weights, *((gate, up) if gate is not None else (up,)), down, *biases)
    attrs: dict[str, int | str] = {"activation": activation, "gated": int(gate is not None)}
    return Tensor(Op.MOE, (x.shape[0], n_embd), src, dict(attrs))


def columns(x: Tensor, first: int, count: int) -> Tensor:
    """Columns [first, first + count) of every row of x f32[rows, n], without a copy."""
    if first < 0 or first + count > x.n_row:
        raise ValueError(f"columns: [{first}, {first + count}) of rows of {x.n_row}")
    return Tensor(Op.COLUMNS, (x.shape[0], count), (x,), {"first": first})


def reshape(x: Tensor, *row: int) -> Tensor:
    """The same values with rows of shape `row`."""
    shape: tuple[Dim, ...] = (x.shape[0], *row)
    made = Tensor(Op.RESHAPE, shape, (x,))
    if made.n_row != x.n_row:
        raise ValueError(f"reshape: rows of {x.n_row} to {row}")
    return made


def merge_rows(x: Tensor, n: int) -> Tensor:
    """Every n rows of x f32[n_tokens, ...], which lie behind each other, as one: f32[n_outputs, n * values of a row]."""
    if x.shape[0] is not Symbol.N_TOKENS or n < 1:
        raise ValueError(f"merge_rows: {n} of {x.shape}")
    return Tensor(Op.MERGE_ROWS, (Symbol.N_OUTPUTS, n * x.n_row), (x,), {"n": n})


def weight_rows(x: Tensor) -> Symbol:
    """The symbol of x's first axis."""
    first = x.shape[0]
    assert isinstance(first, Symbol)
    return first
