"""Which names a user needs, because something public takes, returns, raises or mentions them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.source.fronts import Module, Name, Source

_ROLE = re.compile(r":(?:class|exc|func|meth|data):`~?([\w.]+)`")
_QUOTED = re.compile(r"``([A-Z]\w*)\b[^`]*``")
_CAMEL = re.compile(r"\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b")
_VARIABLES = {"TypeVar", "ParamSpec", "TypeVarTuple"}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def missing_names(source: Source) -> dict[Name, list[str]]:
    """Every name that something public needs and no front exports, with those who need it."""
    public = source.public
    missing: dict[Name, list[str]] = {}
    for definition, front in public.items():
        if definition.name:
            for needed, where in _needed(source, definition, f"{front}.{definition.name}"):
                if needed not in public and needed.name:
                    places = missing.setdefault(needed, [])
                    if where not in places:
                        places.append(where)
    return dict(sorted(missing.items()))


def hidden_exceptions(source: Source) -> list[Name]:
    """Exceptions with a public name that cannot be imported from a front."""
    public = source.public
    found = []
    for module in source.modules.values():
        if module.name.startswith(("penstock.cli", "penstock.tck")):
            continue
        for name, node in module.scope.items():
            if (
                isinstance(node, ast.ClassDef)
                and not name.startswith("_")
                and _is_error(source, module, node)
            ) and Name(module.name, name) not in public:
                found.append(Name(module.name, name))
    return found


def _is_error(source: Source, module: Module, node: ast.ClassDef, depth: int = 0) -> bool:
    for base in node.bases:
        text = ast.unparse(base).split("[")[0].split(".")[-1]
        if re.fullmatch(r"(?:\w*Error|\w*Exception|KeyboardInterrupt|SystemExit)", text):
            return True
        found = source.definition(module.name, text)
        if found is not None and depth < 10:
            above = source[found.module].scope.get(found.name)
            if isinstance(above, ast.ClassDef) and _is_error(source, source[found.module], above, depth + 1):
                return True
    return False


def _needed(source: Source, definition: Name, where: str, depth: int = 0) -> Iterator[tuple[Name, str]]:
    module = source.modules[definition.module]
    node = module.scope.get(definition.name)
    if isinstance(node, FunctionNode):
        yield from _of_function(source, module, node, where)
    elif isinstance(node, ast.ClassDef):
        yield from _of_class(source, module, node, where, depth)
    elif isinstance(node, ast.AnnAssign):
        yield from _of_annotation(source, module, node.annotation, where)
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
        yield from _of_annotation(source, module, node.value, where)  # an alias of types


def _of_class(
    source: Source, module: Module, node: ast.ClassDef, where: str, depth: int
) -> Iterator[tuple[Name, str]]:
    yield from _of_docstring(source, module, node, where)
    for each in node.body:
        if isinstance(each, FunctionNode) and _is_called_by_users(each):
            yield from _of_function(source, module, each, f"{where}.{each.name}")
        elif isinstance(each, ast.AnnAssign) and not ast.unparse(each.target).startswith("_"):
            yield from _of_annotation(source, module, each.annotation, f"{where}.{ast.unparse(each.target)}")
    for base in node.bases:
        # The methods of a base are methods of this class, whoever exports the base.
        name = ast.unparse(base).split("[")[0]
        found = source.definition(module.name, name)
        if found is not None and found.name and depth < 10:
            yield from _needed(source, found, where, depth + 1)


def _is_called_by_users(method: FunctionNode) -> bool:
    """Private methods are not, nor is an ``__init__`` whose docstring says who else calls it: "Made by …"."""
    if method.name == "__init__":
        return not (ast.get_docstring(method) or "").startswith("Made by ")
    return not method.name.startswith("_") or (method.name.startswith("__") and method.name.endswith("__"))


def _of_function(
    source: Source, module: Module, node: FunctionNode, where: str
) -> Iterator[tuple[Name, str]]:
    arguments = node.args
    given = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    for argument in given:
        if argument is not None and argument.annotation is not None:
            yield from _of_annotation(source, module, argument.annotation, where)
    if node.returns is not None:
        yield from _of_annotation(source, module, node.returns, where)
    yield from _of_docstring(source, module, node, where)
    for each in _own_statements(node):
        if isinstance(each, ast.Raise) and each.exc is not None:
            raised = each.exc.func if isinstance(each.exc, ast.Call) else each.exc
            if isinstance(raised, ast.Name):
                found = source.definition(module.name, raised.id)
                if found is not None and isinstance(source[found.module].scope.get(found.name), ast.ClassDef):
                    yield found, where


def _own_statements(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below this one, without those of functions inside."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, FunctionNode | ast.Lambda):
            yield each
            yield from _own_statements(each)


def _of_annotation(
    source: Source, module: Module, annotation: ast.expr, where: str
) -> Iterator[tuple[Name, str]]:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                quoted = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                continue  # a value of a Literal
            yield from _of_annotation(source, module, quoted, where)
        elif isinstance(node, ast.Name):
            found = source.definition(module.name, node.id)
            if found is None or not found.name or _is_type_variable(source, found):
                continue
            named = source[found.module].scope.get(found.name)
            if isinstance(named, ast.ClassDef):
                yield found, where
            else:
                # An alias: what it stands for is what is needed. The alias itself is only shorter.
                yield from _of_alias(source, found, named, where)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            home = source.definition(module.name, node.value.id)
            if home is not None and not home.name:
                found = source.definition(home.module, node.attr)
                if found is not None and found.name:
                    yield found, where


def _of_alias(source: Source, name: Name, node: ast.stmt | None, where: str) -> Iterator[tuple[Name, str]]:
    value = getattr(node, "value", None)
    if isinstance(value, ast.Call):
        yield name, where  # a NewType, or a class that is made by a function
    elif isinstance(value, ast.expr):
        yield from _of_annotation(source, source[name.module], value, where)


def _is_type_variable(source: Source, name: Name) -> bool:
    node = source[name.module].scope.get(name.name)
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in _VARIABLES


def _of_docstring(
    source: Source, module: Module, node: FunctionNode | ast.ClassDef, where: str
) -> Iterator[tuple[Name, str]]:
    text = ast.get_docstring(node) or ""
    names = {found.split(".")[-1] for found in _ROLE.findall(text)}
    names |= set(_QUOTED.findall(text)) | set(_CAMEL.findall(text))
    classes, public = source.classes, source.public
    for name in sorted(names):
        known = classes.get(name, [])
        if known and not any(each in public for each in known):
            near = [each for each in known if each.module.split(".")[1] == module.name.split(".")[1]]
            if near:  # a word of another layer is just a word here
                yield near[0], where
