"""Open a model file: its metadata, and views of its tensors' bytes.

The first station of the pipeline. Below it `header` checks one file; above it `weights`, `hparams` and the tokenizers
read what they need.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

from engine.errors import TensorMissingError
from engine.gguf.header import Header, TensorInfo, read_header
from engine.gguf.mapped import MappedFile
from engine.gguf.quants import dequantize
from engine.gguf.reads import MetadataReads
from engine.gguf.split import check_parts, split_count, split_paths
from engine.types import F32Array, U8Array


class GGUFFile(MetadataReads):
    """A GGUF model, mapped; of one file or of several joined parts.

    Attributes:
        path: the first file.
        paths: all parts, in order.
        version: of the format, 2 or 3.
        alignment: of tensors in the first file, bytes.
        size_bytes: of all parts together.
        metadata: of the first part, in file order.
        tensors: of all parts, in file order.
    """

    def __init__(self, files: list[MappedFile], headers: list[Header]) -> None:
        self._files, self._headers = files, headers
        self.paths = tuple(file.path for file in files)
        self.path = self.paths[0]
        self.version, self.alignment = headers[0].version, headers[0].alignment
        self.size_bytes = sum(file.size for file in files)
        self.metadata = MappingProxyType(headers[0].metadata)
        tensors: dict[str, TensorInfo] = {}
        for header in headers:
            tensors.update(header.tensors)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(tensors)

    def tensor(self, name: str) -> TensorInfo:
        """What the file says of a tensor; TensorMissingError where it is not there."""
        info = self.tensors.get(name)
        if info is None:
            raise TensorMissingError(name, self.path)
        return info

    def tensor_data(self, name: str) -> U8Array:
        """u8[nbytes], the tensor's blocks: a read-only view into the map, valid as long as it is held."""
        info = self.tensor(name)
        return self._files[info.part].data[info.offset : info.offset + info.nbytes]

    def tensor_location(self, name: str) -> tuple[Path, int]:
        """The file that a tensor lies in, and the offset of its first byte there."""
        info = self.tensor(name)
        return self.paths[info.part], info.offset

    def check_unchanged(self) -> None:
        """Raise GGUFFormatError if a file was shortened, replaced or written to since it was opened."""
        for file in self._files:
            file.check_unchanged()

    def release(self, name: str | None = None, first: int = 0, end: int | None = None) -> None:
        """Let go of the memory of the mapped weights, or of bytes [first, end) of a tensor; touched, they are read again."""
        if name is not None:
            info = self.tensor(name)
            last = info.nbytes if end is None else min(end, info.nbytes)
            self._files[info.part].release(info.offset + first, info.offset + last)
            return
        for file, header in zip(self._files, self._headers, strict=True):
            file.release(header.data_start, file.size)

    def close(self) -> None:
        """Unmap all parts, each as soon as no view of it is held any more. Can be called again."""
        for file in self._files:
            file.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Map a model file and check its header; the path of any part opens all of a model in several files.

    Raises: GGUFFormatError: the file cannot be read, is damaged, or is not GGUF version 2 or 3, little-endian.
        UnsupportedQuantError: a tensor of a type that is not known.
    Thread: any.
    Source: GGUF specification.
    """
    files: list[MappedFile] = []
    try:
        files.append(MappedFile(Path(path)))
        headers = [read_header(files[0])]
        count = split_count(files[0].path, headers[0])
        if count > 1:
            paths = split_paths(files[0].path, count)
            files.pop().close()
            headers.clear()
            for part, part_path in enumerate(paths):
                files.append(MappedFile(part_path))
                headers.append(read_header(files[-1], part))
            check_parts(paths, headers)
        for file in files:
            file.check_unchanged()
    except BaseException:
        for file in files:
            file.close()
        raise
    return GGUFFile(files, headers)


def read_tensor(path: str | os.PathLike[str], name: str) -> F32Array:
    """One tensor of a file, de-quantised.

    Returns: f32[*shape], slowest axis first, new.
    Raises: as `open_gguf`; TensorMissingError; UnsupportedQuantError: where its type has no de-quantiser.
    Thread: any.
    """
    with open_gguf(path) as gguf:
        info = gguf.tensor(name)
        return dequantize(info.type, gguf.tensor_data(name), info.shape)
