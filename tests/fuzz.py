"""Damage for files and answers: bits, runs, numbers, cuts, doubled parts; the same for the same seed."""

from __future__ import annotations

import random

ODD = (
    b"\x00",
    b"\xff" * 8,
    b"\xff\xff\xff\x7f",
    b"\x00" * 8,
    b"9" * 30,
    b"-1",
    b"{",
    b"[",
    b'"',
    b"null",
    b"1e999",
    b"{%",
    b"{{",
    b"../",
)


def mutated(data: bytes, rng: random.Random, first: int = 0) -> bytes:
    """The data with some damage.

    Args:
        first: most of the damage is done before this byte; 0: anywhere.
    """
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        end = len(found) if not first or rng.random() < 0.1 else min(first, len(found))
        at = rng.randrange(max(end, 1))
        match rng.randrange(6):
            case 0 if found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
            case 1 if found:
                found[at % len(found)] = rng.randrange(256)
            case 2:
                odd = rng.choice(ODD)
                found[at : at + len(odd)] = odd
            case 3:
                found[at:at] = rng.choice(ODD)
            case 4:
                del found[at : at + rng.randrange(1, 64)]
            case _:
                if rng.random() < 0.3:
                    del found[at:]
                else:
                    found[at:at] = found[at : at + rng.randrange(1, 200)]
    return bytes(found)
