"""Exact metrics over stacks of sets.

To add one: write a function that makes it in the file of its kind, and add a line to that file's ``TABLE``.

>>> find_metric("acuracy")
Traceback (most recent call last):
    ...
ValueError: there is no metric called 'acuracy'; did you mean 'accuracy'? `lossmith metrics` lists them all.
"""

from __future__ import annotations

import difflib

from lossmith.vocabulary import Metric

METRICS: dict[str, Metric] = {}


def find_metric(name: str) -> Metric:
    """The metric of that name in :data:`METRICS`, or an error that names the nearest."""
    if name not in METRICS:
        nearest = difflib.get_close_matches(name, METRICS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"there is no metric called {name!r}; did you mean {nearest!r}? `lossmith metrics` lists them all."
        )
    return METRICS[name]
