"""Everything public is documented, and every operator says when it emits, holds back, completes, cancels."""

import ast
import re
from collections.abc import Iterator
from importlib.util import resolve_name

from tests.source.repository import FunctionNode, decorators, is_public, modules

FLUENT = "penstock.streams.api."
OPERATOR_LINES = ("Emits when", "Backpressures when", "Completes when", "Cancels when")
SOURCE_LINES = ("Emits when", "Completes when")


def functions(scope: ast.Module | ast.ClassDef) -> Iterator[FunctionNode]:
    """Yield the public functions of a module or class; of an overloaded or settable one, what is shown."""
    for node in scope.body:
        if (
            isinstance(node, FunctionNode)
            and is_public(node.name)
            and decorators(node).isdisjoint({"overload", "setter", "deleter"})
        ):
            yield node


def classes(module: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in module.body if isinstance(node, ast.ClassDef))


def exported(module: ast.Module) -> set[str]:
    """Return the names in a module's `__all__`."""
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return set(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    return set()


def reexported() -> set[tuple[str, str]]:
    """Return (module, name) of everything that some `__all__` passes on from where it is defined."""
    found = set()
    for module_name, module in modules().items():
        names = exported(module)
        is_package = any(other.startswith(f"{module_name}.") for other in modules())
        package = module_name if is_package else module_name.rpartition(".")[0]
        for node in module.body:
            if isinstance(node, ast.ImportFrom):
                origin = resolve_name("." * node.level + (node.module or ""), package)
                found |= {
                    (origin, alias.name) for alias in node.names if (alias.asname or alias.name) in names
                }
    return found


SIGNALS = {"on_subscribe", "on_next", "on_error", "on_complete", "request", "cancel"}
"""Whoever implements these keeps the contract that `penstock.spec` documents; there is nothing to add."""


def documented_methods(node: ast.ClassDef, known: dict[str, list[ast.ClassDef]]) -> set[str]:
    """Return the methods of a class that have a docstring, there or in a base class of the package."""
    own = {function.name for function in functions(node) if ast.get_docstring(function)}
    bases = (re.split(r"[\[(]", ast.unparse(base))[0].split(".")[-1] for base in node.bases)
    above = (
        documented_methods(each, known) for base in bases for each in known.get(base, []) if each is not node
    )
    return SIGNALS.union(own, *above)


def undocumented() -> Iterator[str]:
    passed_on = reexported()
    known: dict[str, list[ast.ClassDef]] = {}
    for module in modules().values():
        for node in classes(module):
            known.setdefault(node.name, []).append(node)
    for module_name, module in modules().items():
        if is_public(module_name) and not ast.get_docstring(module):
            yield module_name

        def shown(name: str, module_name: str = module_name) -> bool:
            return (is_public(name) and is_public(module_name)) or (module_name, name) in passed_on

        for function in functions(module):
            if shown(function.name) and not ast.get_docstring(function):
                yield f"{module_name}.{function.name}"
        for node in classes(module):
            if not shown(node.name):
                continue
            if not ast.get_docstring(node):
                yield f"{module_name}.{node.name}"
            documented = documented_methods(node, known)
            for method in functions(node):
                if method.name not in documented:
                    yield f"{module_name}.{node.name}.{method.name}"


def operators() -> Iterator[tuple[str, FunctionNode]]:
    """Yield every fluent method that gives a Flux or a Mono."""
    for module_name, module in modules().items():
        if not module_name.startswith(FLUENT):
            continue
        for node in classes(module):
            if node.name.startswith(("Flux", "Mono")):
                for method in functions(node):
                    returned = ast.unparse(method.returns).strip("'\"") if method.returns else ""
                    if re.match(r"(?:\w*Flux|\w*Mono|Single|Self)\b", returned):
                        yield f"{module_name}.{node.name}.{method.name}", method


def _forms(start: str) -> tuple[str, str]:
    """ "Emits when", or "Never emits"."""
    return start, f"Never {start.split()[0].lower()}"


def test_there_is_something_to_check() -> None:
    assert len(modules()) > 1
    assert list(operators())


def test_everything_public_has_a_docstring() -> None:
    assert "\n".join(undocumented()) == ""


def test_every_operator_says_when_it_emits_holds_back_completes_and_cancels() -> None:
    wrong = []
    for name, method in operators():
        creates_a_source = not decorators(method).isdisjoint({"classmethod", "staticmethod"})
        lines = [line.strip() for line in (ast.get_docstring(method) or "").splitlines()]
        needed = SOURCE_LINES if creates_a_source else OPERATOR_LINES
        missing = [start for start in needed if not any(line.startswith(_forms(start)) for line in lines)]
        if missing:
            wrong.append(f"{name}: {', '.join(missing)}")

    assert "\n".join(wrong) == ""
