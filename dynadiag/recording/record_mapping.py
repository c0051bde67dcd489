"""Map frozen records to SQLite rows and back. One rule for all records, derived from their annotations.

Strings, numbers and booleans are columns. A tuple is one column of JSON. A record inside a record becomes several
columns, with the field's name as a prefix (``span_line``), unless its field says that it has a table of its own. Only
values that the annotation allows are written or read,
so a stranger's recording cannot put a string where the code expects a number.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Any, Generic, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import orjson

MAX_VALUE = 16 << 20  # bytes of one value; the reader sets SQLite's own limit to this
_MAX_TEXT = 1 << 20  # characters of one string; longer ones are cut, the event has the full text
_INT64 = 1 << 63
_SQL = {int: "INTEGER", bool: "INTEGER", float: "REAL", str: "TEXT"}

R = TypeVar("R")


class FieldError(Exception):
    """A value that its field does not allow. The message names the record and the field."""


class _Codec(Protocol):
    """Writes one field to its columns and reads it back."""

    @property
    def columns(self) -> tuple[tuple[str, str, bool], ...]: ...  # name, SQL type, nullable

    def write(self, value: Any) -> list[Any]: ...
    def read(self, cells: Iterator[Any]) -> Any: ...


class RecordMapping(Generic[R]):
    """Reads and writes the records of one type. `columns` are ``(name, SQL type, nullable)``, in order."""

    def __init__(self, record: type[R], table: str) -> None:
        self.record = record
        self._table = table
        self._fields = tuple(_codecs(record, table))
        self.columns = tuple(column for _, codec in self._fields for column in codec.columns)

    def row(self, record: R) -> list[Any]:
        """Return the values of `record` for SQLite. Raises `FieldError`."""
        cells: list[Any] = []
        for name, codec in self._fields:
            try:
                cells += codec.write(getattr(record, name))
            except FieldError as error:
                raise FieldError(f"{self._table}.{name}: {error}") from None
        return cells

    def read(self, cells: Sequence[Any]) -> R:
        """Return the record of a row. Raises `FieldError`."""
        stream = iter(cells)
        try:
            return self.record(*[codec.read(stream) for _, codec in self._fields])
        except FieldError as error:
            raise FieldError(f"table {self._table}: {error}") from None


def _column_of(field: str) -> str:
    """Return the column name of a field. ``index`` is a keyword of SQL."""
    return "id" if field == "index" else field


def _codecs(record: type, table: str, prefix: str = "") -> Iterator[tuple[str, _Codec]]:
    for field in dataclasses.fields(record):
        if not field.metadata.get("table", True):
            continue
        hint, name = _named_type(str(field.type), record.__module__), prefix + _column_of(field.name)
        if dataclasses.is_dataclass(hint):
            inner = "" if field.name == table else f"{name}_"
            yield field.name, _Nested(cast(type, hint), table, inner)
        elif get_origin(hint) is tuple:
            yield field.name, _Tuple(name, get_args(hint)[0])
        else:
            yield field.name, _Scalar(name, *_split_optional(hint))


@functools.cache
def _named_type(annotation: str, module: str) -> Any:
    """The type that an annotation names. Many fields share one, and to evaluate it takes most of an import of ours."""
    holder = type("", (), {"__annotations__": {"field": annotation}, "__module__": module})
    return get_type_hints(holder)["field"]


def _split_optional(hint: Any) -> tuple[type, bool]:
    """Split ``int | None`` into ``(int, True)``."""
    if get_origin(hint) in (Union, UnionType):
        (kind,) = (part for part in get_args(hint) if part is not NoneType)
        return kind, True
    return hint, False


class _Scalar:
    """A number, a boolean or a string."""

    def __init__(self, name: str, kind: type, optional: bool) -> None:
        self.columns = ((name, _SQL[kind], optional),)
        self._write = functools.partial(_write_scalar, kind=kind, optional=optional)
        self._read = functools.partial(_read_scalar, kind=kind, optional=optional)

    def write(self, value: Any) -> list[Any]:
        return [self._write(value)]

    def read(self, cells: Iterator[Any]) -> Any:
        return self._read(next(cells))


def _write_scalar(value: Any, kind: type, optional: bool) -> Any:
    if value is None and optional:
        return None
    if kind is float and type(value) is int:
        value = float(value)
    check_type(value, kind)
    if isinstance(value, str):
        return _sqlite_text(value)
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise FieldError("a number of more than 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise FieldError("a number that is not finite")
    return value


def _read_scalar(value: Any, kind: type, optional: bool) -> Any:
    if value is None and optional:
        return None
    if kind is bool and type(value) is int and value in (0, 1):
        return bool(value)
    return check_type(value, kind)


def check_type(value: Any, kind: type[R]) -> R:
    """Return a value if it has the type, which SQLite does not enforce for a column. Raises `FieldError`."""
    if type(value) is not kind:
        raise FieldError(f"{kind.__name__} expected, found {type(value).__name__}")
    return value


def _sqlite_text(text: str) -> str:
    """Text that SQLite accepts: valid UTF-8, of limited length."""
    if len(text) > _MAX_TEXT:
        text = text[: _MAX_TEXT - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class _Tuple:
    """A tuple of strings or of records, as one column of JSON (records as objects, of scalars and tuples of strings).

    What an older recording lacks has its default."""

    def __init__(self, name: str, item: type) -> None:
        self.columns = ((name, "TEXT", False),)
        self._fields = (
            {
                field.name: _split_optional(_named_type(str(field.type), item.__module__))
                for field in dataclasses.fields(item)
            }
            if dataclasses.is_dataclass(item)
            else None
        )
        self._item = item
        self._kind = tuple[item, ...]  # type: ignore[valid-type]  # a value, for msgspec

    def write(self, value: Any) -> list[Any]:
        """JSON of at most `MAX_VALUE` bytes. The end of a longer tuple is dropped."""
        if type(value) is not tuple:
            raise FieldError(f"tuple expected, found {type(value).__name__}")
        items = [self._to_json(item) for item in value]
        text = orjson.dumps(items)
        while len(text) > MAX_VALUE // 2:
            items = items[: len(items) // 2]
            text = orjson.dumps(items)
        return [text.decode()]

    def read(self, cells: Iterator[Any]) -> Any:
        text = _read_scalar(next(cells), str, False)
        try:
            return msgspec.convert(orjson.loads(text), self._kind)
        except orjson.JSONDecodeError as error:
            raise FieldError(f"not JSON ({error})") from None
        except msgspec.ValidationError as error:
            raise FieldError(str(error)) from None

    def _to_json(self, item: Any) -> Any:
        if self._fields is None:
            return _write_scalar(item, str, False)
        if type(item) is not self._item:
            raise FieldError(f"{self._item.__name__} expected, found {type(item).__name__}")
        return {name: _write_item(getattr(item, name), *kind) for name, kind in self._fields.items()}


def _write_item(value: Any, kind: type, optional: bool) -> Any:
    """A field of a record in a tuple: a scalar, or a tuple of strings."""
    if get_origin(kind) is not tuple:
        return _write_scalar(value, kind, optional)
    return [_write_scalar(item, str, False) for item in check_type(value, tuple)]


class _Nested:
    """A record inside a record."""

    def __init__(self, record: type, table: str, prefix: str) -> None:
        self._record = record
        self._fields = tuple(_codecs(record, table, prefix))
        self.columns = tuple(column for _, codec in self._fields for column in codec.columns)

    def write(self, value: Any) -> list[Any]:
        if type(value) is not self._record:
            raise FieldError(f"{self._record.__name__} expected, found {type(value).__name__}")
        return [cell for name, codec in self._fields for cell in codec.write(getattr(value, name))]

    def read(self, cells: Iterator[Any]) -> Any:
        return self._record(*[codec.read(cells) for _, codec in self._fields])
