"""docs/trust.md names tests that there are."""

import re

import pytest

from .conftest import ROOT, STAFF

NAMED = re.findall(r"`(test_\w+\.py)::(test_\w+)`", (ROOT / "docs" / "trust.md").read_text())


def test_each_attack_names_a_test():
    rows = [
        line
        for line in (ROOT / "docs" / "trust.md").read_text().splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    attacks = rows[next(number for number, row in enumerate(rows) if row.startswith("| a student")) + 1 :]
    assert len(attacks) >= 20
    assert [row for row in attacks if "::test_" not in row] == []


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_it_is_there(file, test):
    assert f"def {test}(" in (STAFF / file).read_text()
