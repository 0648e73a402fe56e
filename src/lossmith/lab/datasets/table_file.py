r"""A table of your own: CSV or Parquet, a column to predict, and all others as they are.

Columns of numbers stay, those of dates become days; an empty cell becomes the mean of its column in the training rows,
beside a column that says it was empty. Every other column is one of categories: a column of zeros and ones for each,
rare ones together. Numbers are read as people write them: ``1.234,5`` beside semicolons, ``1,234.5`` elsewhere.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp(), "pets.csv")
>>> _ = path.write_text("age,kind,is_ill\n" + "3,cat,no\n,dog,yes\n7,cat,no\n" * 10)
>>> pool = read_table(path, target="is_ill")
>>> pool.columns, pool.classes
(('age', 'age is missing', 'kind=cat', 'kind=dog'), ('no', 'yes'))
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lossmith.kinds import Kind
from lossmith.lab.datasets.splitting import Pool

SUFFIXES = (".csv", ".tsv", ".parquet")
MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
MIN_ROWS = 30
# of categories; what is rarer is 'other'
MAX_CATEGORIES, MIN_ROWS_OF_CATEGORY = 30, 5
# above it, values are no classes
MAX_CLASSES = 100
# numbers with so few cells of text among them are numbers with mistakes; and so are those of which half are text, but
# which take too many values to be categories
MAX_SHARE_OF_TEXT, MAX_SHARE_OF_TEXT_AMONG_MANY = 0.05, 0.5
WITH_DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?")
WITH_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?|[+-]?\d*\.?\d+")
# where a day could be a month, the month comes first
DATES = ("%d.%m.%Y", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y")
TIMES = ("", " %H:%M", " %H:%M:%S")
# classes of which the first in order is yes
YES_FIRST = (("ja", "nein"), ("j", "n"), ("ja", "nee"))

Cells = Sequence[Any]


def read_table(path: str | Path, *, target: str | None = None) -> Pool:
    """All rows of the file. Without ``target`` the last column is what is predicted.

    Two classes make yes-or-no predictions; the one that comes last in order is yes (``1`` of 0 and 1, ``yes`` of no and
    yes), or what means yes where that comes first (``ja`` of ja and nein).
    """
    return pool_of_columns(Path(path).stem, read_columns(path), target=target)


def read_columns(path: str | Path) -> Mapping[str, Cells]:
    """Every column by its name, as it stands in the file."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a table in a file works.")
    if not path.is_file():
        raise ValueError(f"{path} is not there.")
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path.name} came; files that end in {', '.join(SUFFIXES)} work.")
    return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)


def pool_of_columns(name: str, columns: Mapping[str, Cells], *, target: str | None = None) -> Pool:
    """From columns of cells: numbers, text, or None."""
    target = _check_target(name, columns, target)
    is_kept = [not _is_missing(cell) for cell in columns[target]]
    num_rows = sum(is_kept)
    if num_rows < MIN_ROWS:
        raise ValueError(
            f"{name} has {_count(num_rows, 'row')} with a {target}; {MIN_ROWS} are the least to train and judge on."
        )
    labels, classes = _classes(name, target, [cell for cell, keep in zip(columns[target], is_kept) if keep])
    names, parts = list[str](), list[NDArray[np.float32]]()
    for column, cells in columns.items():
        if column != target:
            _check_no_text_among_numbers(name, column, cells)
            for part_name, part in _features(name, column, [cell for cell, keep in zip(cells, is_kept) if keep]):
                names.append(part_name)
                parts.append(part)
    if not parts:
        raise ValueError(f"{name} has no column beside {target} that says anything: all others are constant or ids.")
    inputs = torch.from_numpy(np.stack(parts, 1))
    kind = Kind.BINARY if len(classes) == 2 else Kind.MULTICLASS
    return Pool(name, kind, inputs, torch.from_numpy(labels), len(classes), tuple(names), classes)


# ------------------------------------------------------------------------------------------------------------- reading


def _read_csv(path: Path) -> dict[str, list[str]]:
    text = _decoded(path)
    if not text.strip():
        raise ValueError(f"{path.name} is empty.")
    delimiter = "\t" if path.suffix == ".tsv" else _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header, body = list[str](), list[list[str]]()
    try:
        for row in reader:
            if not row:
                continue
            if header and len(row) != len(header):
                raise ValueError(
                    f"{path.name}: line {reader.line_num} has {_count(len(row), 'cell')}, and the header {len(header)}."
                )
            if header:
                body.append([cell.strip() for cell in row])
            else:
                # what pandas writes as an index has no name
                header = [name.strip() or f"column {number}" for number, name in enumerate(row, start=1)]
    except csv.Error as error:
        raise ValueError(f"{path.name} cannot be read as a table: {error} (line {reader.line_num}).") from None
    if not body:
        raise ValueError(f"{path.name} has no rows below its header.")
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise ValueError(f"{path.name} has more than one column called {twice[0]!r}; columns need names of their own.")
    columns = {name: [row[index] for row in body] for index, name in enumerate(header)}
    return {name: _with_points(cells, is_comma_decimal=delimiter == ";") for name, cells in columns.items()}


def _decoded(path: Path) -> str:
    """UTF-8, or what spreadsheets write in its place."""
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encodings = ["utf-16"]
    else:
        encodings = ["utf-8-sig"] if b"\0" in content else ["utf-8-sig", "cp1252"]
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" in text:
            break
        if encoding == "cp1252":
            warnings.warn(f"{path.name} is not in UTF-8; it is read as Windows-1252.", stacklevel=2)
        return text
    raise ValueError(f"{path.name} cannot be read as a table: it is no text.")


def _delimiter(text: str) -> str:
    """Of the first line, the most frequent of comma, semicolon and tab."""
    first = text.lstrip().partition("\n")[0]
    return max(",;\t", key=first.count)


def _with_points(cells: list[str], *, is_comma_decimal: bool) -> list[str]:
    """Numbers with commas as Python writes them; everything else as it is."""
    present = [cell for cell in cells if not _is_missing(cell)]
    if not any("," in cell for cell in present):
        return cells
    # a semicolon is there because the comma is taken
    orders = (False,) if is_comma_decimal else (True, False)
    for has_thousands in orders:
        pattern = WITH_THOUSANDS if has_thousands else WITH_DECIMAL_COMMA
        if sum(pattern.fullmatch(cell) is not None for cell in present) < (1 - MAX_SHARE_OF_TEXT) * len(present):
            continue
        table = str.maketrans({",": None}) if has_thousands else str.maketrans({".": None, ",": "."})
        return [cell.translate(table) if pattern.fullmatch(cell) else cell for cell in cells]
    return cells


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ValueError(
            f"{path.name} needs pyarrow to be read: pip install 'lossmith[parquet]'; a .csv file needs nothing."
        ) from None
    table = parquet.read_table(path)
    return {name: table.column(name).to_pylist() for name in table.column_names}


# -------------------------------------------------------------------------------------------------------------- columns


def _check_target(name: str, columns: Mapping[str, Cells], target: str | None) -> str:
    if not columns:
        raise ValueError(f"{name} has no columns.")
    if target is None:
        return list(columns)[-1]
    if target not in columns:
        nearest = [f"; did you mean {each!r}?" for each in difflib.get_close_matches(target, columns, n=1)]
        shown = ", ".join(list(columns)[:12]) + (" and others" if len(columns) > 12 else "")
        raise ValueError(f"{name} has no column {target!r}{''.join(nearest) or '.'} Columns: {shown}.")
    return target


def _classes(name: str, target: str, cells: Cells) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    numbers, words = _numbers(cells), [_word(cell) for cell in cells]
    distinct = sorted(set(words))
    if len(distinct) == 1:
        raise ValueError(f"every {target} in {name} is {distinct[0]!r}; there is nothing to predict.")
    if len(distinct) > MAX_CLASSES or (numbers is not None and len(distinct) > 20 and not _are_whole(numbers)):
        raise ValueError(
            f"{target} has {len(distinct)} different values in {name}, a number rather than a class; "
            "a column with two or a few different values works."
        )
    if numbers is not None:
        distinct.sort(key=float)
    counts = Counter(words)
    rarest = min(distinct, key=lambda word: counts[word])
    if counts[rarest] < 5:
        raise ValueError(
            f"{target} is {rarest!r} in {_count(counts[rarest], 'row')} of {name} only; 5 are the least, so that "
            "training, validation and test rows all have some. Leave these rows out, or join the class with another."
        )
    if tuple(word.lower() for word in distinct) in YES_FIRST:
        distinct.reverse()
    index = {word: number for number, word in enumerate(distinct)}
    return np.array([index[word] for word in words], dtype=np.int64), tuple(distinct)


def _features(name: str, column: str, cells: Cells) -> list[tuple[str, NDArray[np.float32]]]:
    numbers = _numbers(cells)
    if numbers is not None:
        if _counts_the_rows(numbers):
            # in a file that is sorted by its target it would even give the target away
            warnings.warn(f"{column} counts the rows of {name}: an id, which is left out.", stacklevel=2)
            return []
        return _of_numbers(column, numbers)
    days = _days(cells)
    if days is not None and len(np.unique(days[~np.isnan(days)])) > 1:
        return _of_numbers(column, days)
    words = ["is missing" if _is_missing(cell) else _word(cell) for cell in cells]
    counts = Counter(words)
    if len(counts) > 0.5 * len(words) and len(counts) > MAX_CATEGORIES:
        warnings.warn(
            f"{column} has another word in nearly every row of {name}, such as {words[0]!r}: it is left out.",
            stacklevel=2,
        )
        return []  # a name or an id, from which nothing can be learned
    kept = [word for word, count in counts.most_common(MAX_CATEGORIES) if count >= MIN_ROWS_OF_CATEGORY]
    coded = np.array([word if word in kept else "other" for word in words])
    return [(f"{column}={word}", (coded == word).astype(np.float32)) for word in sorted(set(coded.tolist()))][
        : None if len(set(coded.tolist())) > 1 else 0
    ]


def _of_numbers(column: str, numbers: NDArray[np.float64]) -> list[tuple[str, NDArray[np.float32]]]:
    is_missing = np.isnan(numbers)
    parts = [(column, numbers.astype(np.float32))] if len(np.unique(numbers[~is_missing])) > 1 else []
    if is_missing.any() and not is_missing.all():
        parts.append((f"{column} is missing", is_missing.astype(np.float32)))
    return parts


def _numbers(cells: Cells) -> NDArray[np.float64] | None:
    """NaN where a cell is missing; None where one is text."""
    values = []
    for cell in cells:
        if _is_missing(cell):
            values.append(math.nan)
            continue
        number = _number(cell)
        if number is None:
            return None
        values.append(number)
    return np.array(values)


def _number(cell: Any) -> float | None:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else math.nan


def _days(cells: Cells) -> NDArray[np.float64] | None:
    """Since the first; None where a cell is no date, or not written as the others are."""
    present = [cell if isinstance(cell, datetime) else str(cell) for cell in cells if not _is_missing(cell)]
    formats = [partial(_by_format, form=date + time) for date in DATES for time in TIMES]
    ways: tuple[Callable[[Any], datetime | None], ...] = (_by_iso, *formats)
    for read in ways:
        # nearly all columns of words end at their first cell
        if not present or read(present[0]) is None:
            continue
        dates = [None if _is_missing(cell) else read(cell) for cell in cells]
        known = [date for date in dates if date is not None]
        if len(known) == len(present):
            first = min(known)
            return np.array([math.nan if date is None else (date - first) / timedelta(days=1) for date in dates])
    return None


def _by_iso(cell: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(cell).removesuffix("Z")).replace(tzinfo=None)
    except ValueError:
        return None


def _by_format(cell: Any, *, form: str) -> datetime | None:
    try:
        return datetime.strptime(str(cell), form)
    except ValueError:
        return None


def _check_no_text_among_numbers(name: str, column: str, cells: Cells) -> None:
    present = [cell for cell in cells if not _is_missing(cell)]
    text = [cell for cell in present if _number(cell) is None]
    if not text or len(text) > MAX_SHARE_OF_TEXT_AMONG_MANY * len(present):
        return
    num_values = len({cell for cell in present if _number(cell) is not None})
    if len(text) <= MAX_SHARE_OF_TEXT * len(present) or num_values > MAX_CATEGORIES:
        row = next(number for number, cell in enumerate(cells) if cell is text[0])
        cells_of_text = repr(text[0]) if len(text) == 1 else f"{len(text)} cells such as {text[0]!r}"
        raise ValueError(
            f"{column} in {name} is a column of numbers, but for {cells_of_text} (row {row + 1} below the header); "
            "mend what is no number, or leave it empty."
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _is_missing(cell: Any) -> bool:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return True
    return isinstance(cell, str) and cell.strip().lower() in MISSING


def _word(cell: Any) -> str:
    """1, 1.0 and '1' are one class."""
    number = _number(cell)
    if number is not None and not math.isnan(number) and number.is_integer():
        return str(int(number))
    return str(cell).strip()


def _counts_the_rows(numbers: NDArray[np.float64]) -> bool:
    """The numbers from one to another, each once."""
    if len(numbers) < MIN_ROWS or np.isnan(numbers).any() or not _are_whole(numbers):
        return False
    return bool((np.diff(np.sort(numbers)) == 1).all())


def _are_whole(numbers: NDArray[np.float64]) -> bool:
    return bool((numbers == np.round(numbers)).all())
