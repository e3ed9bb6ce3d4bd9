"""The graph: snapshots from headers alone, shape checks, order."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.arch.registry import ARCHITECTURES
from engine.context.header_graph import graph_text_of_file
from engine.graph import ops
from engine.graph.tensor import Op, RopeSpec, Symbol, Tensor, in_order
from engine.types import QuantType
from tests.engine.graph_headers import digest, read_headers, write_header
from tests.engine.oracle_cases import DATA

HEADERS = read_headers()


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_a_graph_is_the_one_that_was_checked(name: str, tmp_path: Path) -> None:
    path = write_header(tmp_path / "model.gguf", HEADERS[name])
    assert digest(path) == HEADERS[name]["digest"], graph_text_of_file(path)


def test_every_architecture_has_such_a_graph() -> None:
    covered = {header["metadata"]["general.architecture"] for header in HEADERS.values()}
    assert covered == set(ARCHITECTURES)


@pytest.mark.parametrize("name", ["llama", "gemma3", "falcon-h1", "bert-cls"])
def test_weights_change_no_graph(name: str) -> None:
    assert digest(DATA / name / "model.gguf") == HEADERS[name]["digest"]


def test_a_graph_names_its_nodes_and_windows() -> None:
    text = graph_text_of_file(DATA / "gemma3" / "model.gguf")
    assert "attn_norm-0 = rms_norm(" in text
    assert "swa_kind=standard" in text
    assert text.endswith("\n")
    assert "logits = %" in text


def test_sources_come_before_their_users_however_deep() -> None:
    x = Tensor(Op.INPUT, (Symbol.N_TOKENS, 4), name="embd")
    cur = x
    for _ in range(20_000):
        cur = ops.scale(cur, 2.0)
    order = in_order([cur])
    assert order[0] is x
    assert order[-1] is cur
    assert len(order) == 20_001


def test_shapes_that_do_not_fit_are_refused() -> None:
    x = Tensor(Op.INPUT, (Symbol.N_TOKENS, 4), name="embd")
    w = Tensor(Op.WEIGHT, (8, 5), name="w", quant=QuantType.F32)
    with pytest.raises(ValueError, match="w takes rows of 5"):
        ops.mul_mat(w, x)
    with pytest.raises(ValueError, match="differ"):
        ops.add(x, ops.columns(x, 0, 2))
    with pytest.raises(ValueError, match="columns"):
        ops.columns(x, 2, 3)
    with pytest.raises(ValueError, match="n_rot"):
        ops.rope(ops.reshape(x, 1, 4), x, RopeSpec("neox", 6, 1e4))
    with pytest.raises(ValueError, match="reshape"):
        ops.reshape(x, 3)
