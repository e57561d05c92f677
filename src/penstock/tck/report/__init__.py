"""What came out, for readers: rules in rows, subjects in columns, as Markdown, JSON or HTML."""

from __future__ import annotations

from penstock.tck.report.about import About
from penstock.tck.report.matrix import Cell, Report
from penstock.tck.report.writing import FORMATS, jvm_results, write_report

__all__ = ["FORMATS", "About", "Cell", "Report", "jvm_results", "write_report"]
