"""docs/security.md: each test that its tables name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "Threats": ("tests/sandbox",), "In a page": ("tests/web",),
    "Plans and devices": ("tests/unit", "tests/faults", "tests/web"),
    "Models that would grow": ("tests/fuzz", "tests/passes", "tests/unit"),
}  # fmt: skip


def rows() -> list[tuple[str, str, str]]:
    """(section, threat, cell of tests) of each row of a table with a column of tests."""
    found = []
    for part in (ROOT / "docs" / "security.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        section, _, text = part.partition("\n")
        table = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
        if table and "test" in table[0]:
            place = table[0].index("test")
            found += [(section, row[0], row[place]) for row in table[2:]]
    return found


def test_there_is_a_table_in_each_section() -> None:
    assert {section for section, *_ in rows()} == set(SECTIONS)


@pytest.mark.parametrize(("section", "threat", "cell"), rows(), ids=[r[1][:60] for r in rows()])
def test_named_tests_exist(section: str, threat: str, cell: str) -> None:
    files = [
        f for folder in SECTIONS[section] for f in (ROOT / folder).rglob("*") if f.suffix in (".py", ".toml", ".json")
    ]
    source = "\n".join(f.read_text(encoding="utf-8") for f in files)
    names = re.findall(r"`([^`]+)`", cell)
    assert names, "no test is named"
    for name in names:
        known = any(f.name == name or str(f).endswith(name) for f in files) if "." in name else name in source
        assert known or re.search(rf"\b{re.escape(name)}\b", source), name
        if name.startswith("test_") and "." not in name:
            assert re.search(rf"^ *def {name}\(", source, re.M), name
