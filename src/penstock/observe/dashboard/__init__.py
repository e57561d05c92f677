"""The dashboard: one page that shows a running pipeline, served on a thread of its own."""

from penstock.observe.dashboard.access import BadToken
from penstock.observe.dashboard.options import DashboardOptions
from penstock.observe.dashboard.server import Dashboard

__all__ = ["BadToken", "Dashboard", "DashboardOptions"]
