"""The front doors of the packages, read from the source of any tree: what they export, who goes past them.

Everything here is read with ``ast``, nothing is imported. So the same code measures this tree, an older
checkout of it, and packages whose dependencies are not installed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

DOORS = (
    "penstock.spec",
    "penstock.streams",
    "penstock.streams.spi",
    "penstock.streams.schedulers",
    "penstock.net",
    "penstock.net.framing",
    "penstock.net.http",
    "penstock.aquifer",
    "penstock.feeds",
    "penstock.spark",
    "penstock.observe",
    "penstock.tck",
    "penstock.testing",
    "penstock.interop",
    "penstock.interop.jvm",
)
"""Where one package of ours may enter another."""

FRONTS = (
    "penstock",
    *DOORS,
    "penstock.interop.reactivex_bridge",
    "penstock.interop.rsocket_bridge",
)
"""Where a user imports from: the doors, and the bridges, each of which needs a library of its own."""


class Name(NamedTuple):
    """Where something is defined: a module of ours, and a name in it."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Import(NamedTuple):
    """One imported name: who imports it, in which line, from where."""

    importer: str
    line: int
    module: str
    name: str | None

    def __str__(self) -> str:
        what = f"from {self.module} import {self.name}" if self.name else f"import {self.module}"
        return f"{self.importer}:{self.line}: {what}"


@dataclass
class Module:
    """A module of ours, parsed."""

    name: str
    path: Path
    tree: ast.Module
    is_package: bool
    lines: int

    @cached_property
    def imports(self) -> list[Import]:
        """Every import of a module of ours, wherever it stands in the file."""
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found += [Import(self.name, node.lineno, node.module, alias.name) for alias in node.names]
            elif isinstance(node, ast.Import):
                found += [Import(self.name, node.lineno, alias.name, None) for alias in node.names]
        return [each for each in found if each.module.split(".")[0] == "penstock"]

    @cached_property
    def exported(self) -> list[str]:
        """The names in ``__all__``."""
        for node in self.tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and target.id == "__all__":
                value = node.value  # type: ignore[attr-defined]
                constants = (each.value for each in ast.walk(value) if isinstance(each, ast.Constant))
                return [each for each in constants if isinstance(each, str)]
        return []

    @cached_property
    def scope(self) -> dict[str, ast.stmt]:
        """What the module binds at its top level, with the statement that does it."""
        return dict(_bindings(self.tree.body))


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            yield from ((t.id, node) for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.split(".")[0], node) for alias in node.names)
        elif isinstance(node, ast.If | ast.Try):
            yield from _bindings(node.body)
            yield from _bindings(node.orelse)


@dataclass
class Source:
    """All modules of ours in one tree."""

    root: Path
    modules: dict[str, Module] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: Path) -> Source:
        """Parse everything in the ``src`` of ``tree``."""
        source = cls(tree / "src")
        for path in sorted(source.root.rglob("*.py")):
            parts = path.relative_to(source.root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            text = path.read_text("utf-8")
            parsed = ast.parse(text, filename=str(path))
            source.modules[name] = Module(name, path, parsed, is_package, len(text.splitlines()))
        return source

    def __getitem__(self, name: str) -> Module:
        return self.modules[name]

    def definition(self, module: str, name: str) -> Name | None:
        """Where a name that a module can see is defined; None if it is not ours."""
        for _ in range(20):
            if f"{module}.{name}" in self.modules:
                return Name(f"{module}.{name}", "")
            if module not in self.modules:
                return None
            node = self.modules[module].scope.get(name)
            if node is None:
                return None
            if not isinstance(node, ast.ImportFrom):
                return Name(module, name) if not isinstance(node, ast.Import) else None
            alias = next(a for a in node.names if (a.asname or a.name) == name)
            module, name = node.module or "", alias.name
        return None

    def past_the_door(self) -> list[Import]:
        """Every import that enters another package anywhere but through what its door exports."""
        return [each for m in self.modules.values() for each in m.imports if not self._allowed(each)]

    def _allowed(self, found: Import) -> bool:
        target, at = found.module, f"{found.module}.{found.name}"
        if package_of(found.importer) == package_of(target if found.name is None else at):
            return True
        if found.importer == "penstock.__main__":
            return target == "penstock.cli"
        if target == "penstock":
            # A module beside the packages, or a package by its name.
            return at in DOORS or at not in self.modules or not self.modules[at].is_package
        if len(target.split(".")) == 2 and target in self.modules and not self.modules[target].is_package:
            return True  # a module beside the packages, which all of them may use
        if target not in DOORS:
            return False
        return found.name is None or at in DOORS or found.name in self.modules[target].exported

    @cached_property
    def classes(self) -> dict[str, list[Name]]:
        """Every class with a public name, by that name, with the modules that define one."""
        found: dict[str, list[Name]] = {}
        for module in self.modules.values():
            for name, node in module.scope.items():
                if isinstance(node, ast.ClassDef) and not name.startswith("_"):
                    found.setdefault(name, []).append(Name(module.name, name))
        return found

    @cached_property
    def public(self) -> dict[Name, str]:
        """Everything that a front exports, by where it is defined, with the front."""
        found: dict[Name, str] = {}
        for front in FRONTS:
            if front in self.modules:
                for name in self.modules[front].exported:
                    definition = self.definition(front, name)
                    if definition is not None:
                        found.setdefault(definition, front)
        return found


def package_of(module: str) -> str:
    """The package of ours that a module belongs to: ``penstock.net``; itself, if it stands beside them."""
    parts = module.split(".")
    if parts[0] == "pyspark_penstock":
        return "penstock.spark"
    return ".".join(parts[:2])
