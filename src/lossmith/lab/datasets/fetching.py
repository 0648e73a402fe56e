"""Tables from OpenML and from the Hugging Face hub, for people with a network: nothing here runs unless it is called.

>>> bunch = {"data": np.array([[1.0, 0.0], [np.nan, 1.0]] * 20), "target": np.array(["no", "yes"] * 20),
...          "feature_names": ["age", "kind"], "categories": {"kind": ["cat", "dog"]}}
>>> pool_of_bunch("pets", bunch).columns
('age is missing', 'kind=cat', 'kind=dog')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lossmith.lab.datasets.splitting import Pool
from lossmith.lab.datasets.table_file import pool_of_columns


def fetch_openml_table(name_or_id: str | int, *, data_home: str | None = None) -> Pool:
    """A table of openml.org, by its number (which stays the same) or its name; kept in ``data_home``."""
    from sklearn.datasets import fetch_openml

    which = {"data_id": int(name_or_id)} if str(name_or_id).isdigit() else {"name": str(name_or_id)}
    bunch = fetch_openml(**which, as_frame=False, parser="liac-arff", data_home=data_home)
    return pool_of_bunch(f"openml-{name_or_id}", bunch)


def pool_of_bunch(name: str, bunch: Mapping[str, Any]) -> Pool:
    """What ``fetch_openml(as_frame=False)`` gives: categories are numbers there, and their names beside them."""
    from scipy.sparse import issparse

    data = bunch["data"].toarray() if issparse(bunch["data"]) else np.asarray(bunch["data"])
    categories = bunch.get("categories") or {}
    columns: dict[str, list[Any]] = {}
    for index, column in enumerate(bunch["feature_names"]):
        cells = data[:, index].tolist()
        if column in categories:
            words = categories[column]
            cells = [words[int(cell)] if cell is not None and cell == cell else None for cell in cells]
        columns[column] = cells
    if "target" in columns:
        raise ValueError(f"{name} has a feature called 'target' beside its target.")
    columns["target"] = np.asarray(bunch["target"]).tolist()
    return pool_of_columns(name, columns, target="target")


def fetch_hub_table(
    path: str, *, split: str = "train", target: str | None = None, data_files: str | None = None
) -> Pool:
    """A table of the Hugging Face hub; ``fetch_hub_table("csv", data_files="mine.csv")`` reads a file."""
    try:
        import datasets
    except ImportError:
        raise ValueError("the hub needs the datasets package: pip install 'lossmith[hub]'.") from None
    table = datasets.load_dataset(path, split=split, data_files=data_files)
    return pool_of_columns(path, {name: table[name] for name in table.column_names}, target=target)
