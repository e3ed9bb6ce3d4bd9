"""Build the compiled core: one object per instruction set, linked into every extension of `cext`.

A C++ file's name says what it may use: `*_avx2.cpp` and `*_avx512.cpp` are compiled for that instruction set and
reached only through a table filled at import from the CPU's own word; every other file is plain for the architecture.
`CEXT_DEBUG=1` builds with bounds checks, assertions and sanitizers.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
SRC = ROOT / "cext" / "src"
DEBUG = os.environ.get("CEXT_DEBUG") == "1"
MSVC = sys.platform == "win32"
X86 = platform.machine().lower() in ("x86_64", "amd64")

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": DEBUG,
    "nonecheck": False,
    "embedsignature": True,
    "binding": True,
    "freethreading_compatible": True,
}

if MSVC:
    BASE_FLAGS = ["/std:c++17", "/O2", "/EHsc"]
    ISA_FLAGS = {"avx2": ["/arch:AVX2"], "avx512": ["/arch:AVX512"]}
    LINK_FLAGS: list[str] = []
else:
    BASE_FLAGS = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread", "-g1"]
    BASE_FLAGS += ["-O1", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"] if DEBUG else ["-O3", "-DNDEBUG"]
    ISA_FLAGS = {
        "avx2": ["-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2"],
        "avx512": [
            "-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl",
            "-mavx512vnni", "-mavx512bf16", "-mavx512vbmi", "-mprefer-vector-width=512",
        ],
        "amx": [
            "-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl",
            "-mavx512vnni", "-mavx512bf16", "-mavx512vbmi", "-mamx-tile", "-mamx-int8", "-mprefer-vector-width=512",
        ],
    }  # fmt: skip
    LINK_FLAGS = ["-pthread"] + (["-fsanitize=address,undefined"] if DEBUG else [])
WARNINGS = [] if MSVC else ["-Wall", "-Wextra", "-Werror"]


def isa_of(source: Path) -> str | None:
    """The instruction set that a file's name asks for, or None for plain code."""
    match = re.search(r"_(avx2|avx512|amx)$", source.stem)
    return match.group(1) if match else None


class BuildCore(build_ext):
    """Compile `cext/src` once, in parallel and only where something changed, then link it into each extension."""

    def build_extensions(self) -> None:
        objects = self._compile_core()
        for extension in self.extensions:
            extension.extra_objects = objects
        if not MSVC and self.parallel is None:
            self.parallel = os.cpu_count()
        super().build_extensions()

    def _compile_core(self) -> list[str]:
        folder = Path(self.build_temp).resolve() / "core"
        folder.mkdir(parents=True, exist_ok=True)
        sources = [s for s in sorted(SRC.glob("*.cpp")) if X86 or isa_of(s) is None]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(lambda source: self._compile_one(source, folder), sources))
        if MSVC:
            return objects
        archive = folder / "libcext.a"  # so that each extension links only what it calls
        archive.unlink(missing_ok=True)
        subprocess.run([*os.environ.get("AR", "ar").split(), "rcs", str(archive), *objects], check=True)
        return [str(archive)]

    def _compile_one(self, source: Path, folder: Path) -> str:
        target = folder / (source.stem + (".obj" if MSVC else ".o"))
        isa = isa_of(source)
        flags = BASE_FLAGS + WARNINGS + (ISA_FLAGS.get(isa, []) if isa else [])
        if DEBUG and isa and not MSVC:
            flags.append(
                "-fno-sanitize=undefined"
            )  # a quarter of an hour a file: every unrolled access would be checked
        stamp = target.with_suffix(".flags")
        depends = target.with_suffix(".d")
        if self._is_fresh(target, stamp, depends, flags):
            return str(target)
        if MSVC:
            self.compiler.compile([str(source)], output_dir=str(folder), extra_postargs=flags)
            return str(next(folder.rglob(target.name)))
        compiler = os.environ.get("CXX", "g++").split()
        command = [*compiler, *flags, "-MMD", "-MF", str(depends), "-c", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{source}: the compiler says\n{done.stderr[:20000]}")
        stamp.write_text(" ".join(flags))
        return str(target)

    def _is_fresh(self, target: Path, stamp: Path, depends: Path, flags: list[str]) -> bool:
        if not (target.exists() and stamp.exists() and depends.exists()) or stamp.read_text() != " ".join(flags):
            return False
        files = depends.read_text().replace("\\\n", " ").split(":", 1)[1].split()
        built = target.stat().st_mtime
        return all(Path(f).exists() and Path(f).stat().st_mtime <= built for f in files)


def extensions() -> list[Extension]:
    headers = [str(p.relative_to(ROOT)) for p in sorted(SRC.glob("*.h"))]
    cython = [str(p.relative_to(ROOT)) for p in sorted((ROOT / "cext").glob("*.pxd"))]
    own = [str(p.relative_to(ROOT)) for p in sorted(SRC.glob("*.cpp"))]
    return [
        Extension(
            f"cext.{source.stem}",
            [str(source.relative_to(ROOT))],
            include_dirs=[str(SRC), numpy.get_include()],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
            extra_compile_args=BASE_FLAGS,
            extra_link_args=LINK_FLAGS,
            language="c++",
            depends=headers + cython + own,
        )
        for source in sorted((ROOT / "cext").glob("*.pyx"))
    ]


setup(
    ext_modules=cythonize(extensions(), compiler_directives=DIRECTIVES, build_dir="build/cython", quiet=True),
    cmdclass={"build_ext": BuildCore},
)
