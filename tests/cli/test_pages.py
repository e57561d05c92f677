"""The tables of the manual are those that the declarations make."""

import pytest

from tests.cli.tables import DOCS, TABLES, with_tables


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_a_page_are_made_of_the_declarations(name: str) -> None:
    assert (DOCS / name).read_text("utf-8") == with_tables(name), "run python -m tests.cli.tables"
