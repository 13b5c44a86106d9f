"""Parquet, the columns of the CSV with their types. Needs pyarrow: `npu-fleet[parquet]`."""

from __future__ import annotations

import importlib
from itertools import islice
from pathlib import Path
from typing import Any

from fleet.model.errors import InputError
from fleet.model.extras import install_extra
from fleet.profiles.exports import flat
from fleet.profiles.store import ProfileStore, Query

ROWS = 5000  # a row group


def write(store: ProfileStore, query: Query, target: Path, _clock_hz: float | None) -> int:
    """How many records were written. Raises InputError without pyarrow."""
    arrow, files = _library("pyarrow"), _library("pyarrow.parquet")
    wanted = flat.columns(store, query)
    types = {"string": arrow.string(), "bool": arrow.bool_()}
    types |= {"int64": arrow.int64(), "double": arrow.float64()}
    schema = arrow.schema([(name, types[kind]) for name, kind in wanted.items()])
    count = 0
    with files.ParquetWriter(str(target), schema) as writer:
        rows = flat.rows(store, query)
        while some := list(islice(rows, ROWS)):
            made = {name: [row.get(name) for row in some] for name in wanted}
            writer.write_table(arrow.table(made, schema=schema))
            count += len(some)
    return count


def _library(name: str) -> Any:  # noqa: ANN401 - a module without types
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            "fleet needs the Python package pyarrow to write Parquet, but pyarrow is not installed",
            hint=f"{install_extra('parquet')}; or --format csv",
        ) from error
