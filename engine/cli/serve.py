"""`serve MODEL`: a local server that OpenAI's clients can talk to."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path

from engine.cli.options import N_CTX_DEFAULT, Subparsers, add_context, add_model, at_least, open_model
from engine.context.kinds import create_context
from engine.context.params import ContextParams
from engine.errors import ParamError

KEY_VARIABLE = "CAUSERIE_API_KEY"
MISSING = "the server needs more packages: pip install 'causerie[server]'"


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser("serve", help="an OpenAI-compatible server on this computer")
    add_model(parser)
    add_context(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; another than this computer needs a key"
    )
    parser.add_argument("--port", type=at_least(int, 0), default=8080, help="0: any free one (default: 8080)")
    parser.add_argument(
        "--api-key-file", type=Path, help=f"file with the key that clients have to show (else: ${KEY_VARIABLE})"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="another name of this computer"
    )
    parser.add_argument("--allow-origin", action="append", default=[], metavar="URL", help="web page that may use it")
    parser.add_argument("--alias", default="", help="name of the model for clients")
    parser.add_argument("-np", "--parallel", type=at_least(int, 1), default=4, help="replies made at once (default: 4)")
    parser.add_argument("--queue", type=at_least(int, 0), default=64, help="requests that may wait (default: 64)")
    parser.add_argument("--slot-save-path", type=Path, metavar="FOLDER", help="where slots may be saved")
    parser.add_argument("--context-shift", action="store_true", help="drop the oldest turns when the context is full")
    parser.add_argument(
        "--cache-reuse", type=at_least(int, 0), default=0, metavar="N",
        help="move chunks of at least N tokens behind an edit instead of computing them again; 0: never (default)",
    )  # fmt: skip
    return parser


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl+C."""
    try:
        from engine.server.config import ServerConfig
        from engine.server.serving import Server
    except ImportError:
        raise ParamError(MISSING) from None
    config = ServerConfig(
        host=args.host,
        port=args.port,
        api_key=_read_key(args.api_key_file),
        allowed_hosts=tuple(name.lower() for name in args.allow_host),
        allowed_origins=tuple(args.allow_origin),
        alias=args.alias,
        slot_save_path=args.slot_save_path,
        context_shift=args.context_shift,
        n_cache_reuse=args.cache_reuse,
        n_queue_max=args.queue,
    )
    with open_model(args) as model:
        n_ctx = min(N_CTX_DEFAULT, model.n_ctx_train) if args.ctx_size is None else args.ctx_size
        ctx = create_context(
            model, ContextParams(n_ctx=n_ctx, n_seq_max=args.parallel, type_k=args.type_k, type_v=args.type_v)
        )
        try:
            server = Server(model, ctx, config)
            print(f"{args.model.name}: listening on {server.url}", file=sys.stderr, flush=True)
            with suppress(KeyboardInterrupt):  # uvicorn ends in order, and passes the signal on then
                server.run()
        finally:
            ctx.close()
    return 0


def _read_key(path: Path | None) -> str:
    if path is None:
        return os.environ.get(KEY_VARIABLE, "")
    key = path.read_text(encoding="utf-8").strip()
    if not key:
        raise ParamError(f"{path}: no key in it")
    return key
