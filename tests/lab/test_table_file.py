"""Tables of one's own: what is read, and what is said of those that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from lossmith.kinds import Kind
from lossmith.lab.datasets.splitting import split
from lossmith.lab.datasets.table_file import read_table

AGES = [str(20 + number % 7) for number in range(40)]
ILL = ["no", "yes", "no", "no"] * 10


def written(path: Path, columns: dict[str, Sequence[str]], *, delimiter: str = ",") -> Path:
    rows = [delimiter.join(columns), *(delimiter.join(row) for row in zip(*columns.values()))]
    path.write_text("\n".join(rows) + "\n", encoding="utf8")
    return path


def test_columns_of_all_sorts(tmp_path: Path) -> None:
    kinds = ["cat", "dog", "", "cow"] * 10
    path = written(
        tmp_path / "pets.csv",
        {
            "id": [str(k) for k in range(40)],
            "age": ["", *AGES[1:]],
            "kind": kinds,
            "name": [f"n{k}" for k in range(40)],
            "ill": ILL,
        },
    )
    with pytest.warns(UserWarning, match="(id counts the rows|name has another word in nearly every row)") as warned:
        pool = read_table(path, target="ill")
    assert len(warned) == 2
    assert (pool.name, pool.kind, pool.classes) == ("pets", Kind.BINARY, ("no", "yes"))
    assert pool.columns == ("age", "age is missing", "kind=cat", "kind=cow", "kind=dog", "kind=is missing")
    assert pool.targets[:4].tolist() == [0, 1, 0, 0]
    assert bool(pool.inputs[0, 0].isnan())
    assert pool.inputs[0, 1:].tolist() == [1, 1, 0, 0, 0]


def test_missing_values_become_the_mean_of_the_training_rows(tmp_path: Path) -> None:
    pool = read_table(written(tmp_path / "a.csv", {"age": ["", "9", *AGES[2:]], "ill": ILL}))
    parts = split(pool, [0, 1])
    rows = parts.rows(torch.arange(40).expand(2, -1))
    assert bool(rows.isfinite().all())
    assert rows[:, 0, 0].tolist() == [0, 0]
    for seed in range(2):
        train = pool.inputs[parts.train[seed], 0].double()
        mean, deviation = np.nanmean(train.numpy()), np.nanstd(train.numpy())
        assert float(rows[seed, 5, 0]) == pytest.approx((float(pool.inputs[5, 0]) - mean) / deviation, rel=1e-4)


def test_as_a_scikit_learn_pipeline_reads_it(tmp_path: Path) -> None:
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    ages = [age if number % 5 else "" for number, age in enumerate(AGES)]
    pool = read_table(written(tmp_path / "a.csv", {"age": ages, "ill": ILL}))
    parts = split(pool, [3])
    raw = np.array([[float(age) if age else np.nan] for age in ages])
    # the scale is that of the values that are there, which imputed ones would shrink
    pipeline = make_pipeline(StandardScaler(), SimpleImputer()).fit(raw[parts.train[0].numpy()])
    found = parts.rows(torch.arange(40)[None])[0, :, :1]
    assert np.allclose(found.numpy(), pipeline.transform(raw), atol=1e-5)


def test_rare_categories_are_one(tmp_path: Path) -> None:
    towns = ["A"] * 20 + ["B"] * 16 + ["C", "D", "E", "F"]
    pool = read_table(written(tmp_path / "a.csv", {"town": towns, "ill": ILL}))
    assert pool.columns == ("town=A", "town=B", "town=other")


def test_numbers_as_classes(tmp_path: Path) -> None:
    pool = read_table(written(tmp_path / "a.csv", {"age": AGES, "y": ["10", "9", "2", "9.0"] * 10}))
    assert (pool.kind, pool.classes) == (Kind.MULTICLASS, ("2", "9", "10"))


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters(tmp_path: Path, delimiter: str) -> None:
    path = written(tmp_path / "a.csv", {"age": AGES, "ill": ILL}, delimiter=delimiter)
    assert read_table(path, target="ill").columns == ("age",)


def test_rows_without_a_target_are_left_out(tmp_path: Path) -> None:
    assert len(read_table(written(tmp_path / "a.csv", {"age": AGES, "ill": ["", *ILL[1:]]})).targets) == 39


@pytest.mark.parametrize(
    ("columns", "target", "message"),
    [
        ({"age": AGES, "ill": ILL}, "il", "no column 'il'; did you mean 'ill'"),
        ({"age": AGES, "ill": ["no"] * 40}, "ill", "every ill in a is 'no'"),
        ({"age": AGES[:8], "ill": ILL[:8]}, "ill", "8 rows with a ill; 30 are the least"),
        (
            {"age": ["old", *AGES[1:]], "ill": ILL},
            "ill",
            "a column of numbers, but for 'old' \\(row 1 below",
        ),
        ({"ill": ILL, "age": [f"{k}.5" for k in range(40)]}, "age", "40 different values in a, a number rather than"),
        ({"age": AGES, "ill": ["yes", *["no"] * 39]}, "ill", "ill is 'yes' in 1 row of a only"),
        (
            {"age": [f"{k}.5" if k % 3 else "not known" for k in range(60)], "ill": ["no", "yes"] * 30},
            "ill",
            "a column of numbers, but for 20 cells such as 'not known' \\(row 1 below",
        ),
        ({"age": ["3"] * 40, "ill": ILL}, "ill", "no column beside ill that says anything"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, columns: dict[str, Sequence[str]], target: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(written(tmp_path / "a.csv", columns), target=target)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "a,b\n1,2\n", "files that end in .csv"),
        ("a.csv", "a,b\n", "no rows below its header"),
        ("a.csv", "", "a.csv is empty"),
        ("a.csv", "a,b\n1,2\n", "a has 1 row with a b; 30 are the least"),
        ("a.csv", "a,a\n1,2\n", "more than one column called 'a'"),
        ("a.csv", "a,b\n1,\0\n", "it is no text"),
        ("a.csv", "a,b\n\n\n1,2\n1,2,3\n", "line 5 has 3 cells"),
        ("a.csv", "a,b\n1,2\n1\n", "line 3 has 1 cell, and the header 2"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf8")
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name)
    with pytest.raises(ValueError, match="is not there"):
        read_table(tmp_path / "nowhere.csv")


def test_as_a_spreadsheet_in_german_writes_it(tmp_path: Path) -> None:
    text = "Nr;Betrag;Stück;Ort;Seit;gekauft\n" + "".join(
        f'{k};{k % 9}.000,{k % 10}5;{k % 4};"Köln; Mitte";{1 + k % 28:02d}.0{1 + k % 3}.2024;{word}\n'
        for k, word in enumerate(["nein", "ja", "ja"] * 14)
    )
    for encoding in ("utf-8-sig", "utf-16"):
        path = tmp_path / "kunden.csv"
        path.write_text(text, encoding=encoding)
        with pytest.warns(UserWarning, match="Nr counts the rows"):
            pool = read_table(path)
        assert pool.columns == ("Betrag", "Stück", "Seit")  # one town says nothing
        assert pool.classes == ("nein", "ja")
        assert pool.inputs[3].tolist() == pytest.approx([3000.35, 3, 3])  # the fourth of January, from the first
    path.write_text(text, encoding="cp1252")
    with pytest.warns(UserWarning, match=r"Windows-1252|Nr counts"):
        assert "Stück" in read_table(path).columns


@pytest.mark.parametrize(
    ("cells", "first"),
    [(["1,234.50", "-12", "1,000,000"], 1234.5), (["1,5", "2,25", "3"], 1.5), (["1,500", "2,250", "12"], 1500)],
)
def test_commas_in_numbers(tmp_path: Path, cells: list[str], first: float) -> None:
    quoted = [f'"{cells[k % 3]}"' for k in range(40)]
    pool = read_table(written(tmp_path / "a.csv", {"price": quoted, "ill": ILL}))
    assert pool.columns == ("price",)
    assert float(pool.inputs[0, 0]) == first


@pytest.mark.parametrize(
    "dates",
    [
        ["2024-01-30", "2024-02-01", ""],
        ["2024-01-30T06:00:00Z", "2024-02-01T06:00:00Z", "NA"],
        ["01/30/2024", "02/01/2024", ""],
        ["30/01/2024 12:00", "01/02/2024 12:00", ""],
        ["2024/01/30 12:00:30", "2024/02/01 12:00:30", ""],
    ],
)
def test_dates_become_days(tmp_path: Path, dates: list[str]) -> None:
    pool = read_table(written(tmp_path / "a.csv", {"since": [dates[k % 3] for k in range(40)], "ill": ILL}))
    assert pool.columns == ("since", "since is missing")
    assert pool.inputs[:2, 0].tolist() == [0, 2]
    assert bool(pool.inputs[2, 0].isnan())


def test_columns_without_a_name(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", {"": [str(k) for k in range(40)], "age": AGES, " ": AGES, "ill": ILL})
    with pytest.warns(UserWarning, match="column 1 counts the rows of a: an id"):
        assert read_table(path).columns == ("age", "column 3")


def test_the_row_of_a_mistake_is_that_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", {"age": [*AGES[:9], "old", *AGES[10:]], "ill": ["", "", *ILL[2:]]})
    with pytest.raises(ValueError, match=r"'old' \(row 10 below the header\)"):
        read_table(path)


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"age": [None, *(int(age) for age in AGES[1:])], "kind": ["a", "b"] * 20, "ill": [0, 1] * 20}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet").columns == ("age", "age is missing", "kind=a", "kind=b")


def test_parquet_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match="pip install 'lossmith\\[parquet\\]'"):
        read_table(tmp_path / "a.parquet")
