"""What a subcommand is given to register itself."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    # argparse gives the type no public name, and no subscript at run time.
    Commands = argparse._SubParsersAction
