"""`/tokenize`, `/detokenize`, `/apply-template` and `/v1/embeddings`: text without a reply."""

from __future__ import annotations

import base64
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse

from engine.server.completions import read_texts
from engine.server.fields import read_fields
from engine.server.prompts import read_messages
from engine.server.replies import or_gone
from engine.server.served import served_of

MAX_TEXTS = 2048
"""Source: OpenAI API reference, embeddings `input`."""


async def tokenize(request: Request) -> JSONResponse:
    """Text to ids, with the text of each where that is wanted."""
    served, fields = served_of(request), await read_fields(request)
    text = fields.text("content")
    add_special, parse_special = fields.flag("add_special", False), fields.flag("parse_special", True)
    tokenizer = served.model.tokenizer
    ids = await served.in_text_thread(lambda: tokenizer.encode(text, add_special, parse_special))
    if not fields.flag("with_pieces", False):
        return JSONResponse({"tokens": ids})
    pieces = [{"id": token, "piece": tokenizer.token_to_piece(token).decode(errors="replace")} for token in ids]
    return JSONResponse({"tokens": pieces})


async def detokenize(request: Request) -> JSONResponse:
    """Ids to text."""
    served, fields = served_of(request), await read_fields(request)
    ids = [] if fields.get("tokens") == [] else fields.ids("tokens", fields.get("tokens"), served.n_vocab)
    text = await served.in_text_thread(lambda: served.model.tokenizer.decode(ids))
    return JSONResponse({"content": text})


async def apply_template(request: Request) -> JSONResponse:
    """Messages to the text of a prompt."""
    served, fields = served_of(request), await read_fields(request)
    messages = [{"role": message.role, "content": message.text} for message in read_messages(fields, False)]
    add = fields.flag("add_generation_prompt", True)
    template = served.model.chat_template
    text = await served.in_text_thread(lambda: template.render(messages, add_generation_prompt=add))
    return JSONResponse({"prompt": text})


async def embeddings(request: Request) -> JSONResponse:
    """The vectors of texts, each of length 1."""
    served, fields = served_of(request), await read_fields(request)
    fields.refuse("dimensions")
    kind = fields.text("encoding_format", "float")
    if kind not in ("float", "base64"):
        fields.fail("encoding_format", "'float' or 'base64' is needed")
    all_ids = await served.in_text_thread(lambda: read_texts(fields, "input", served))
    if len(all_ids) > MAX_TEXTS:
        fields.fail("input", f"at most {MAX_TEXTS} texts")
    data = []
    for index, ids in enumerate(all_ids):
        vector = await or_gone(request, served.in_scheduler(partial(served.embedder.embed, ids)))
        values = vector.astype("<f4")
        embedding = values.tolist() if kind == "float" else base64.b64encode(values.tobytes()).decode()
        data.append({"object": "embedding", "index": index, "embedding": embedding})
    n_tokens = sum(map(len, all_ids))
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return JSONResponse({"object": "list", "model": served.name, "data": data, "usage": usage})
