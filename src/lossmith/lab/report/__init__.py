"""One self-contained page that says what a comparison found: it opens from a file, prints, and loads nothing.

Read ``page`` (what is on it), then ``plots`` (its pictures) and ``themes`` (how they follow light and dark).
"""

from lossmith.lab.report.page import Run, read_run, write_report

__all__ = ["Run", "read_run", "write_report"]
