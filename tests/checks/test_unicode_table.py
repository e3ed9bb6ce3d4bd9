"""The table of Unicode categories is what its generator makes, and right for all that this Python knows."""

from __future__ import annotations

import re
import unicodedata

from tests.checks.unicode_table import CATEGORIES, TARGET, VERSION, ranges, source


def runs() -> list[tuple[int, int]]:
    """The runs in the committed file."""
    body = TARGET.read_text().split("kCategoryRuns[] = {")[1].split("};")[0]
    words = [int(word, 16) for word in re.findall(r"0x[0-9a-f]+", body)]
    return [(word >> 5, word & 31) for word in words]


def test_the_file_is_as_generated() -> None:
    assert source(runs()) == TARGET.read_text()


def test_categories_are_right() -> None:
    table: list[str] = []
    found = runs()
    for (first, index), (behind, _) in zip(found, [*found[1:], (0x110000, 0)], strict=True):
        table += [CATEGORIES[index]] * (behind - first)
    if unicodedata.unidata_version == VERSION:
        assert ranges(unicodedata.category) == found
    known = [c for c in range(0x110000) if unicodedata.category(chr(c)) != "Cn" and table[c] != "Cn"]
    assert len(known) > 280_000
    # Between versions a category is corrected now and then.
    assert sum(unicodedata.category(chr(c)) != table[c] for c in known) < 30
