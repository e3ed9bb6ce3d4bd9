"""Load test of the server: many clients, some leaving in mid-stream, against the rate of the bare batch.

    python -m tests.bench.serve_load [MODEL] [--clients 64] [--seconds 60] [--slots 16] [--json]

Prints the total rate of generated tokens, the batch benchmark's rate on the same machine, torn streams, refusals and
the growth of memory. The clients are a process of their own and share the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from engine import Batch, ContextParams, create_context, load_model

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "build" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
N_PROMPT, N_GEN = 32, 96
LEAVES = 0.1
"""Share of the clients' requests that are left in mid-stream."""


@dataclass(slots=True)
class Load:
    """What the clients saw.

    Attributes:
        outcomes: "done", "left", "refused" or "torn".
        n_tokens: pieces of text that arrived.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    n_tokens: int = 0


def batch_rate(path: Path, n_slots: int, n_rounds: int = 3) -> float:
    """Generated tokens a second of n_slots sequences in one batch, without a server: the median of some rounds."""
    rates = []
    with load_model(path) as model:
        n_vocab, rng = model.hparams.n_vocab, random.Random(0)
        ctx = create_context(model, ContextParams(n_ctx=N_PROMPT + N_GEN, n_seq_max=n_slots))
        for _ in range(n_rounds + 1):
            ctx.get_kv_self().clear()
            began = time.perf_counter()
            prompts = [[rng.randrange(n_vocab) for _ in range(N_PROMPT)] for _ in range(n_slots)]
            ctx.decode(Batch.join([Batch.from_tokens(ids, 0, seq) for seq, ids in enumerate(prompts)]))
            for at in range(N_GEN - 1):
                ctx.decode(
                    Batch.join([Batch.from_tokens([rng.randrange(n_vocab)], N_PROMPT + at, s) for s in range(n_slots)])
                )
            rates.append(n_slots * N_GEN / (time.perf_counter() - began))
        ctx.close()
    return statistics.median(rates[1:])


async def visit(host: str, port: int, rng: random.Random, load: Load, until: float) -> None:
    """One client: asks again and again; sometimes it leaves."""
    while time.monotonic() < until:
        leave_after = rng.randrange(1, N_GEN // 2) if rng.random() < LEAVES else None
        prompt = [rng.randrange(10, 250) for _ in range(N_PROMPT)]
        body = json.dumps({"prompt": prompt, "max_tokens": N_GEN, "ignore_eos": True, "stream": True}).encode()
        reader, writer = await asyncio.open_connection(host, port)
        try:
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            writer.write(head.encode() + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await writer.drain()
            status = await reader.readline()
            outcome = await _read_stream(reader, load, leave_after) if b" 200 " in status else "refused"
            load.outcomes[outcome if b" 429 " in status or b" 200 " in status else status.decode().strip()] += 1
        finally:
            writer.close()
        if outcome == "refused":
            await asyncio.sleep(rng.uniform(0.5, 1.5))


async def _read_stream(reader: asyncio.StreamReader, load: Load, leave_after: int | None) -> str:
    n = 0
    is_over = False
    while line := await reader.readline():
        if not line.startswith(b"data: "):
            continue
        if line == b"data: [DONE]\n":
            is_over = True
            continue
        choice = json.loads(line[6:])["choices"][0]
        if choice["finish_reason"] is None:
            n += 1
            load.n_tokens += 1
            if n == leave_after:
                return "left"
        elif choice["finish_reason"] != "length":
            return f"ended: {choice['finish_reason']}"
    return "done" if is_over else "torn"


async def visit_all(host: str, port: int, n_clients: int, seconds: float, seed: int) -> Load:
    """Let all clients ask for some time."""
    load, until = Load(), time.monotonic() + seconds
    await asyncio.gather(*(visit(host, port, random.Random(seed + i), load, until) for i in range(n_clients)))
    return load


def measure(path: Path, n_clients: int, seconds: float, n_slots: int, n_queue: int, n_ctx: int) -> dict[str, object]:
    """Start a server, load it, end it."""
    command = [sys.executable, "-m", "engine", "serve", str(path), "--port", "0", "-np", str(n_slots)]
    command += ["--queue", str(n_queue), "-c", str(n_ctx)]
    server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        line = server.stderr.readline()
        host, _, port = line.rpartition("http://")[2].strip().rpartition(":")
        process = psutil.Process(server.pid)
        asyncio.run(visit_all(host, int(port), n_clients, min(seconds / 4, 10.0), seed=1))
        before = process.memory_info().rss
        began = time.monotonic()
        load = asyncio.run(visit_all(host, int(port), n_clients, seconds, seed=1000))
        elapsed = time.monotonic() - began
        after = process.memory_info().rss
    finally:
        server.terminate()
        server.wait(timeout=30)
        server.stderr.close()
    return {
        "tok_s": load.n_tokens / elapsed,
        "outcomes": dict(load.outcomes),
        "rss_mb": after / 2**20,
        "rss_growth_mb": (after - before) / 2**20,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", nargs="?", type=Path, default=MODEL)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--queue", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rounds = []
    for _ in range(args.rounds):
        alone = batch_rate(args.model, args.slots)
        got = measure(args.model, args.clients, args.seconds, args.slots, args.queue, N_PROMPT + N_GEN + 1)
        rounds.append({"batch_tok_s": alone, **got})
    if args.json:
        print(json.dumps(rounds))
        return
    for got in rounds:
        print(got)


if __name__ == "__main__":
    main()
