"""The tables of docs/feeds.md, made of the registry and the options; run as a program, it writes them."""

from __future__ import annotations

from pathlib import Path

from penstock import feeds
from penstock.feeds import FeedOptions
from penstock.options import markdown_table

PAGE = Path(__file__).parents[2] / "docs" / "feeds.md"


def schemes() -> str:
    rows = ["| URL | where the records come from |", "|---|---|"]
    for scheme in feeds.known_schemes().values():
        rows.append(f"| `{scheme.form}` | {scheme.help} |")
        rows += [f"| `{scheme.form}?{flag}` | {what} |" for flag, what in scheme.flags.items()]
    return "\n".join(rows)


TABLES = {"schemes": schemes, "options": lambda: markdown_table(FeedOptions)}


def with_tables(page: str) -> str:
    """The page with its tables as they should be."""
    for name, table in TABLES.items():
        before, _, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        assert end, f"docs/feeds.md has no place for the table of {name}"
        page = f"{before}<!-- {name} -->\n\n{table()}\n\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
