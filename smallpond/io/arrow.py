"""Arrow schemas and tables: the few conversions that every face of the engine shares.

Strings and binaries are `large_` everywhere inside, so that no column overflows 32-bit offsets
however many rows are put behind each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from smallpond.errors import PlanError


def large_type(kind: pa.DataType) -> pa.DataType:
    """The type with 64-bit offsets and without dictionaries, also inside nested types."""
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary(kind) or pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return large_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(large_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([large_field(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(large_field(kind.key_field), large_field(kind.item_field))
    return kind


def large_field(field: pa.Field) -> pa.Field:
    return field.with_type(large_type(field.type))


def large_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([large_field(field) for field in schema])


def large_table(table: pa.Table) -> pa.Table:
    """The table with `large_` types; no copy where it has them already."""
    schema = large_schema(table.schema)
    return table if schema.equals(table.schema) else table.cast(schema)


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema` by name; those the batch lacks become NULL."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(batch.column(index).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def unify(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """One schema that all can be cast to: null becomes any type, integers widen, no more.

    Raises:
        PlanError: two schemas give one column types that have no common one.
    """
    distinct = list(dict.fromkeys(large_schema(schema) for schema in schemas))
    if len(distinct) == 1:
        return distinct[0]
    try:
        return pa.unify_schemas(distinct, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise PlanError(
            f"parts of one frame disagree about the type of a column: {error}; "
            "give the step that makes them schema=pyarrow.schema([...])"
        ) from error


def columns_to_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as dictionaries, as `to_pylist` gives them but several times faster."""
    names = batch.schema.names
    columns = [_values(column) for column in batch.columns]
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    plain_number = pa.types.is_integer(kind) or pa.types.is_float64(kind)
    if plain_number and column.null_count == 0:
        return list(column.to_numpy().tolist())
    if pa.types.is_large_string(kind) or pa.types.is_string(kind):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return [None if value is None else int(value) for value in values]
    return values


def rows_to_batch(rows: Sequence[dict[str, Any]], schema: pa.Schema | None) -> pa.RecordBatch:
    """A batch of the rows; without a schema, of the union of their keys with inferred types.

    Raises:
        TypeError: a row is not a dictionary.
        ValueError: a row has a key that the given schema lacks.
    """
    for row in rows:
        if not isinstance(row, dict):
            raise TypeError(f"the function must return a dict per row, not {type(row).__name__}")
    if schema is None:
        names = list(dict.fromkeys(name for row in rows for name in row))
        arrays = [pa.array([row.get(name) for row in rows]) for name in names]
        schema = pa.schema([(n, large_type(a.type)) for n, a in zip(names, arrays, strict=True)])
        columns = [a.cast(f.type) for a, f in zip(arrays, schema, strict=True)]
        return _batch(columns, schema, len(rows))
    unknown = {name for row in rows for name in row} - set(schema.names)
    if unknown:
        raise ValueError(f"the function returned columns not in schema=: {sorted(unknown)}")
    columns = [pa.array([row.get(f.name) for row in rows], f.type) for f in schema]
    return _batch(columns, schema, len(rows))


def _batch(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def whole_decimals_as_integers(table: pa.Table) -> pa.Table:
    """DECIMAL(38,0), which is what DuckDB's HUGEINT sums become, as int64 where the values fit."""
    for index, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            try:
                column = table.column(index).cast(pa.int64())
            except pa.ArrowInvalid:
                continue
            table = table.set_column(index, field.with_type(pa.int64()), column)
    return table
