"""Finds the pipeline that ``app.py:pipeline`` names."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from penstock.cli.errors import CommandError

if TYPE_CHECKING:
    from penstock.spark import Pipeline

__all__ = ["load_pipeline"]

T = TypeVar("T")


def load_pipeline(target: str, start_spark: Callable[[], object]) -> Pipeline:
    """Return the Pipeline that ``target`` names, or that the function it names returns.

    ``start_spark`` is called if the code needs a session while it is loaded, as ``@udf("bigint")`` does.
    Otherwise a wrong target is reported before Spark starts, which takes seconds.
    """
    from penstock.spark import Pipeline

    place, _, name = target.partition(":")
    name = name or "pipeline"
    module = (
        _file(Path(place), start_spark)
        if place.endswith(".py") or os.sep in place
        else _module(place, start_spark)
    )
    found = getattr(module, name, None)
    if found is None:
        pipelines = [other for other, value in vars(module).items() if _can_run(value)]
        # Not what was imported: the class Pipeline has a close name, and is no pipeline.
        own = [other for other, value in vars(module).items() if _is_of(module, value)]
        close = pipelines or difflib.get_close_matches(name, own, 1)
        hint = f"; did you mean {place}:{close[0]}?" if close else f": write {name} = Pipeline(…).into(…)"
        raise CommandError(f"{place} has no {name}{hint}")
    if callable(found) and not isinstance(found, Pipeline):
        try:
            found = found()
        except Exception as error:
            raise CommandError(f"{target}() failed: {_where(error)}", 1) from error
    if not isinstance(found, Pipeline):
        raise CommandError(
            f"{place}:{name} is neither a Pipeline nor a function that returns one, but "
            f"{type(found).__name__}"
        )
    if found.sink is None:
        raise CommandError(f"the pipeline {target} has no sink: add .into(…)")
    return found


def _can_run(value: object) -> bool:
    from penstock.spark import Pipeline

    return isinstance(value, Pipeline) and value.sink is not None


def _is_of(module: ModuleType, value: object) -> bool:
    return getattr(value, "__module__", module.__name__) == module.__name__ and not isinstance(value, type)


def _file(path: Path, start_spark: Callable[[], object]) -> ModuleType:
    if not path.is_file():
        raise CommandError(f"there is no file {path}: check the path")
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    # The workers have to find the modules beside it as well.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    name = path.stem if path.stem not in sys.modules else f"_penstock_run_{path.stem}"
    loader = SourceFileLoader(name, str(path))  # Whatever the name of the file ends with.
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None, "it has a loader"
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        _with_spark_if_need_be(lambda: loader.exec_module(module), start_spark)
    except CommandError:
        raise  # Spark did not start, which is not the fault of the file.
    except Exception as error:
        raise CommandError(f"{path} cannot be run: {_where(error)}", 1) from error
    from pyspark import cloudpickle

    # Its functions are sent to the workers by value: there, this module does not exist, or is another one.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _module(name: str, start_spark: Callable[[], object]) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise CommandError(f"{name!r} is neither a file nor a module: write app.py:pipeline")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return _with_spark_if_need_be(lambda: importlib.import_module(name), start_spark)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise CommandError(f"{name} cannot be imported: {_where(error)}", 1) from error
        remedy = f"to run the file of this name, write ./{name}" if Path(name).is_file() else "check the name"
        raise CommandError(f"there is no module {name}: {remedy}") from None
    except CommandError:
        raise
    except Exception as error:
        raise CommandError(f"{name} cannot be imported: {_where(error)}", 1) from error


def _with_spark_if_need_be(load: Callable[[], T], start_spark: Callable[[], object]) -> T:
    try:
        return load()
    except RuntimeError as error:
        if "[SESSION_OR_CONTEXT_NOT_EXISTS]" not in str(error):
            raise
    start_spark()
    return load()


def _where(error: BaseException) -> str:
    """Describe an error in one line, with the line of the user's code where it happened."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    what = " ".join(what.split())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    ours = [frame for frame in frames if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError) or not ours:
        return what
    return f"{what} ({Path(ours[-1].filename).name}, line {ours[-1].lineno})"
