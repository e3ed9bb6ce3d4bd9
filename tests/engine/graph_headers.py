"""Headers of tiny models of every architecture, with the digests of their graphs: tests/data/graphs.json.

    python -m tests.engine.graph_headers NAME MODEL.gguf     add a model, or its digest once more

A digest changes only when what the model computes changes; then the oracle says whether it is still right.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from engine.context.header_graph import graph_text_of_file
from engine.gguf import GGUFWriter, StringArray, open_gguf
from engine.gguf.quants import tensor_bytes
from engine.types import QuantType

PATH = Path(__file__).resolve().parent.parent / "data" / "graphs.json"
Header = dict[str, Any]
"""digest, metadata (without tokenizer and descriptions), tensors: [type, *shape] by name."""


def read_headers() -> dict[str, Header]:
    """All of them, by the model's name."""
    headers: dict[str, Header] = json.loads(PATH.read_text())
    return headers


def header_of(path: Path) -> Header:
    """What a file's header says, as far as its graph needs it."""
    metadata: dict[str, object] = {}
    with open_gguf(path) as gguf:
        for key, value in gguf.metadata.items():
            if key == "general.architecture" or not key.startswith(("tokenizer.", "general.")):
                strings = [text.decode() for text in value] if isinstance(value, StringArray) else value
                metadata[key] = strings.tolist() if isinstance(strings, np.ndarray) else strings
        tensors = {name: [info.type.name, *info.shape] for name, info in gguf.tensors.items()}
    return {"metadata": metadata, "tensors": tensors}


def write_header(path: Path, header: Header) -> Path:
    """A file with that header; all weights are zero."""
    writer = GGUFWriter(path, header["metadata"]["general.architecture"])
    for key, value in header["metadata"].items():
        if key != "general.architecture":
            writer.add(key, value)
    for name, (type_name, *shape) in header["tensors"].items():
        quant = QuantType[type_name]
        writer.add_tensor(name, quant, np.zeros(tensor_bytes(quant, tuple(shape)), np.uint8), tuple(shape))
    writer.write()
    return path


def digest(path: Path) -> str:
    """Of the graph that a file's header makes."""
    return hashlib.blake2b(graph_text_of_file(path).encode(), digest_size=8).hexdigest()


def main(name: str, path: Path) -> None:
    """Add a model."""
    header = header_of(path)
    with TemporaryDirectory() as folder:
        header["digest"] = digest(write_header(Path(folder) / "model.gguf", header))
    headers = read_headers() | {name: header}
    lines = (f"{json.dumps(key)}: {json.dumps(headers[key], separators=(',', ':'))}" for key in sorted(headers))
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
