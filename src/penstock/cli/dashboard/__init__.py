"""``penstock dashboard``: gateways that run somewhere, on a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cli.parser import Commands, add_command

if TYPE_CHECKING:
    from penstock.cli.dashboard.server import DashboardCommandOptions

__all__ = ["add_parser"]

_DESCRIPTION = """\
Show running gateways on a page: the pipeline as a picture, with the hop that limits the flow, rates, levels
and lag over time, the subscribers with their cursors, and recent errors. The page is for this machine alone
unless --listen says otherwise; then visitors need a token.
"""

_EXAMPLES = """\
examples:
  penstock dashboard tcp://127.0.0.1:5556
                                     at http://127.0.0.1:5580/
  penstock dashboard tcp://127.0.0.1:5556 tcp://127.0.0.1:5557 --listen 127.0.0.1:0
                                     two gateways, at any free port
  penstock dashboard tcp://127.0.0.1:5556 --listen 0.0.0.0:5580 --dashboard-token token
                                     for other machines: visitors need the token in that file; with
                                     --tls-cert server.pem --tls-key server.key it is encrypted
  penstock dashboard --grafana > penstock.json
                                     the metrics of `penstock gateway --metrics` on a page of Grafana: a file
                                     for its Dashboards, New, Import
  curl -H @header http://127.0.0.1:5580/snapshot.json
                                     the figures for a program; the file has `Authorization: Bearer TOKEN`

exit codes: 0 SIGTERM or SIGHUP; 1 the address cannot be used; 2 wrong command line; 130 Ctrl-C
"""


def _load() -> tuple[type[DashboardCommandOptions], Callable[[DashboardCommandOptions], int]]:
    from penstock.cli.dashboard.server import DashboardCommandOptions, run_dashboard

    return DashboardCommandOptions, run_dashboard


def add_parser(commands: Commands) -> None:
    """Add ``penstock dashboard`` to the command line."""
    add_command(
        commands,
        "dashboard",
        _load,
        help="show running gateways on a page: who holds whom up",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
