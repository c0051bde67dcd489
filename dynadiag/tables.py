"""A recording in Python and in a notebook: its report, and its findings, breaks, recompiles and kernels as tables."""

from __future__ import annotations

import html
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_type_hints, overload

from dynadiag.errors import DynadiagError, UnreadableInput
from dynadiag.explanation.changes import main_changes
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.guard_text import described
from dynadiag.explanation.values import ValueTable, range_text
from dynadiag.recording.opening import open_recording_as
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Break, Kernel, NodeValue, Recompile
from dynadiag.recording.sql import run_query
from dynadiag.recording.torch_text.sources import attribute_name
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import source_location
from dynadiag.render.printer import Printer
from dynadiag.render.report import Report, report
from dynadiag.render.table import fitted_table
from dynadiag.render.values import value_report, values_json
from dynadiag.render.wrap import truncate_middle

if TYPE_CHECKING:
    import pandas

R = TypeVar("R")

_MAX_SHOWN = 20  # rows
_MAX_CELL = 100  # columns of a value that is shown


class Rows(Sequence[R], Generic[R]):
    """Typed rows, which are read when they are first needed. A notebook shows them as a table.

    Calling a table returns its rows as a tuple, for one compile if its id is given. ``columns`` are the names of the
    columns of `to_pandas`.
    """

    def __init__(self, read: Callable[[], tuple[R, ...]], kind: type[R], cwd: str | None = None) -> None:
        self._read, self._cwd = read, cwd
        self.columns = _columns(kind)

    @cached_property
    def _rows(self) -> tuple[R, ...]:
        return self._read()

    def __call__(self, compile_id: str | None = None) -> tuple[R, ...]:
        """Return the rows as a tuple, of one compile or of all."""
        if compile_id is None:
            return self._rows
        return tuple(row for row in self._rows if compile_id in _compile_ids(row))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows)

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[R, ...]: ...
    def __getitem__(self, index: int | slice) -> R | tuple[R, ...]:
        return self._rows[index]

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with a column for each field, also of no rows. A span becomes file, line, column, ...

        Raises `DynadiagError` if pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise DynadiagError("to_pandas: pandas is missing: pip install pandas") from error
        return pandas.DataFrame([_flat(row) for row in self._rows], columns=list(self.columns))

    def __repr__(self) -> str:
        heads, rows = self._shown()
        if not rows:
            return "no rows"
        lines = fitted_table(heads, rows, None, numeric=(), shorten={})
        return "\n".join([*lines, *self._rest("list(...)")])

    def _repr_html_(self) -> str:
        """What a notebook shows. Text of the recording is escaped."""
        heads, rows = self._shown()
        if not rows:
            return "<p>no rows</p>"
        body = "\n".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
        more = "".join(f"<p>{html.escape(line)}</p>" for line in self._rest(".to_pandas()"))
        return f"<table>\n<thead><tr>{_cells(heads, 'th')}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>{more}"

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """The heads and the first rows as text that is safe to show."""
        rows = [_summary(row, self._cwd) for row in self._rows[:_MAX_SHOWN]]
        heads = list(rows[0]) if rows else []
        return heads, [[_cell(row[head]) for head in heads] for row in rows]

    def _rest(self, how: str) -> list[str]:
        hidden = len(self._rows) - _MAX_SHOWN
        return [f"and {hidden} more: {how} has all"] if hidden > 0 else []


class OpenRecording(Recording):
    """A recording that Python opened. ``breaks``, ``recompiles``, ``kernels`` and ``findings`` are tables."""

    # A table can be called as the method whose place it takes.
    breaks: Rows[Break]
    recompiles: Rows[Recompile]
    kernels: Rows[Kernel]
    findings: Rows[Finding]

    def __init__(self, path: Path) -> None:
        """Open the recording at `path`. Raises `UnreadableInput`."""
        super().__init__(path)
        cwd = self.run.cwd
        self.breaks = Rows(super().breaks, Break, cwd)
        self.recompiles = Rows(super().recompiles, Recompile, cwd)
        self.kernels = Rows(super().kernels, Kernel, cwd)
        self.findings = Rows(lambda: self.report().findings, Finding, cwd)

    @classmethod
    def at(cls, path: Path) -> OpenRecording:
        """Open a recording, or a journal that is not folded yet. Raises `UnreadableInput`."""
        return open_recording_as(path, cls)

    def __repr__(self) -> str:
        try:
            return f"<recording {clean_line(str(self.path))}, {self.report()!r}>"
        except UnreadableInput as error:  # it is closed
            return f"<recording {clean_line(str(error))}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the summary of its report."""
        return self.report()._repr_html_()

    @cached_property
    def _report(self) -> Report:
        return replace(report(self), path=str(self.path))

    def report(self) -> Report:
        """Explain the recording. ``print`` shows the report as text, and a notebook a summary."""
        return self._report

    def sql(self, query: str, *values: object, limit: int | None = None, size: int | None = None) -> Rows[Any]:
        """Run one ``SELECT`` on the tables of the recording, and return up to ``limit`` rows as named tuples.

        With ``size`` the row with which the values exceed so many characters and bytes is the last.

        Each ``?`` of the query stands for one of ``values``. docs/recording-schema.md has the tables. Raises
        `DynadiagError` if the query is wrong, does anything but read, or takes more than a minute.
        """
        result = run_query(self._database, query, values, limit=limit, size=size)
        row: Any = namedtuple("Row", result.columns, rename=True)  # type: ignore[misc]  # the query names its fields
        rows = tuple(row(*values) for values in result.rows)
        return Rows(lambda: rows, row)


def _compile_ids(row: object) -> Sequence[str]:
    """The compiles that a row is of: none, one, or of a finding any number."""
    one = getattr(row, "compile_id", None)
    return getattr(row, "compile_ids", ()) if one is None else (one,)


@cache
def _parts(kind: type) -> tuple[tuple[str, type | None], ...]:
    """The fields of a dataclass, each with the dataclass that its value is, if it is one or None."""
    hints = get_type_hints(kind)
    return tuple((field.name, _dataclass_of(hints[field.name])) for field in fields(kind))


def _dataclass_of(hint: Any) -> type | None:
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return next((each for each in options if isinstance(each, type) and is_dataclass(each)), None)


def _columns(kind: type) -> tuple[str, ...]:
    """The names of the columns of such rows, whether there are any or not."""
    if not is_dataclass(kind):
        return tuple(kind._fields)  # type: ignore[attr-defined]  # a row of a query
    return tuple(
        column
        for name, part in _parts(kind)
        for column in ([name] if part is None else [_lead(name) + each.name for each in fields(part)])
    )


def _lead(name: str) -> str:
    """What the columns of a field begin with: nothing for those of the row's own place."""
    return "" if name == "span" else f"{name}_"


def _flat(row: object) -> Mapping[str, object]:
    """A row as the values of its columns."""
    if not (is_dataclass(row) and not isinstance(row, type)):
        return row._asdict()  # type: ignore[attr-defined]  # a row of a query
    values: dict[str, object] = {}
    for name, part in _parts(type(row)):
        value = getattr(row, name)
        if part is not None:
            values |= {_lead(name) + key: item for key, item in (asdict(value) if value is not None else {}).items()}
        else:
            values[name] = [_plain(item) for item in value] if isinstance(value, tuple) else value
    return values


def _plain(item: object) -> object:
    return asdict(item) if is_dataclass(item) and not isinstance(item, type) else item


def _summary(row: object, cwd: str | None) -> Mapping[str, object]:
    """The columns of a row that are shown."""
    match row:
        case Break(span=span):
            place = source_location(span.file, span.line, span.column, cwd)
            columns = {"compile": row.compile_id, "place": place, "function": row.function}
            return {"id": row.gb_id or "", **columns, "reason": row.gb_type, "follows from": row.cause}
        case Recompile():
            place = source_location(row.file, row.line, None, cwd)
            changes = "; ".join(map(described, main_changes(row.reasons)))
            return {"compile": row.compile_id, "function": row.function, "place": place, "changed": changes}
        case Finding(span=span):
            place = source_location(span.file, span.line, span.column, cwd)
            return {"rule": row.rule, "id": row.id or "", "severity": row.severity, "place": place, "title": row.title}
        case Kernel():
            return {"compile": row.compile_id, "name": row.name, "language": row.language}
        case NodeValue(span=span):
            place = source_location(span.file, span.line, None, cwd)
            return {"node": row.node, "op": row.op, "place": place, "value": range_text(row), "off": row.off_float64}
        case _:
            return _flat(row)


def _cell(value: object) -> str:
    return "" if value is None else truncate_middle(clean_line(str(value)), _MAX_CELL)


def _cells(values: Sequence[str], tag: str) -> str:
    return "".join(f'<{tag} style="text-align: left">{html.escape(value)}</{tag}>' for value in values)


class Values(Rows[NodeValue]):
    """The nodes of the graphs of a call, in the order of execution, with their values.

    ``report`` is the explanation of the same call.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self._table = report.values if report.values is not None else ValueTable((), (), {})
        super().__init__(lambda: self._table.nodes, NodeValue, report.run.cwd)

    @property
    def first_nan(self) -> NodeValue | None:
        """The first node that makes a NaN which its graph returns, or the input that has it."""
        return self._table.first_nan

    @property
    def first_inf(self) -> NodeValue | None:
        """The first node with an infinity."""
        return self._table.first_inf

    @property
    def first_wrong(self) -> NodeValue | None:
        """The first node whose value, as compiled code stored or returned it, rounding does not explain."""
        return self._table.first_wrong

    def node(self, name: str) -> NodeValue:
        """Return the first node of a name, torch's or the one shown. Raises `DynadiagError` if there is none."""
        for node in self._table.nodes:
            if name in (node.node, attribute_name(node.node)):
                return node
        known = ", ".join(dict.fromkeys(attribute_name(node.node) for node in self._table.nodes))
        raise DynadiagError(f"node: no {name!r} is in the values; these are: {known or 'none'}")

    def to_json(self) -> str:
        """Return the document that `dynadiag values --json` writes."""
        run = self.report.run
        return values_json(self._table, run.target, run.torch, run.exit_code).decode("utf-8")

    def __repr__(self) -> str:
        return value_report(self.report, Printer(), calls_option="calls=").rstrip("\n")
