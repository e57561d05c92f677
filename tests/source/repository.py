"""The repository as the tests of this folder see it: its files and its parsed modules."""

import ast
import gc
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def files() -> Iterator[Path]:
    """Yield every file that .gitignore does not leave out.

    The tree is walked rather than asked of git, so that new files count before they are added, and a copy
    without history is checked as well.
    """
    lines = (ROOT / ".gitignore").read_text().splitlines()
    ignored = [".git", *(line.rstrip("/") for line in lines if line and not line.startswith("#"))]

    def kept(name: str) -> bool:
        return not any(fnmatch(name, pattern) for pattern in ignored)

    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = filter(kept, subfolders)
        yield from (Path(folder, name) for name in names if kept(name))


def texts() -> Iterator[tuple[Path, str]]:
    """Yield every text file, as path from the root, with its content."""
    for path in files():
        try:
            yield path.relative_to(ROOT), path.read_bytes().decode()
        except UnicodeDecodeError:
            continue


@cache
def modules() -> dict[str, ast.Module]:
    """Return every module of the package, parsed, by its dotted name."""
    parsed = {}
    # Python 3.11 counts how deep it is in all threads together: a garbage collection in the middle, which
    # lets another thread compile something, makes it stop with a SystemError about a "depth mismatch".
    gc.disable()
    try:
        for path in sorted(SOURCE.rglob("*.py")):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            parsed[name] = ast.parse(path.read_text(), filename=str(path))
    finally:
        gc.enable()
    return parsed


def is_public(name: str) -> bool:
    """Tell whether no part of a dotted name starts with an underscore."""
    return not any(part.startswith("_") for part in name.split("."))


def decorators(function: FunctionNode) -> set[str]:
    """Return the last names of a function's decorators: `overload`, `classmethod`, `setter`, ..."""
    return {ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in function.decorator_list}
