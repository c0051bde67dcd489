"""The values of a compiled call in Python: a table that prints, and its first nodes that are not finite or wrong."""

from __future__ import annotations

from dynadiag.errors import DynadiagError
from dynadiag.explanation.values import ValueTable
from dynadiag.recording.records import NodeValue
from dynadiag.render.printer import Printer
from dynadiag.render.report import Report
from dynadiag.render.values import value_report, values_json
from dynadiag.tables import Rows

__all__ = ["Values"]


class Values(Rows[NodeValue]):
    """The nodes of the graphs of a call, in the order of execution, with their values.

    ``report`` is the explanation of the same call.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self._table = report.values if report.values is not None else ValueTable((), (), {})
        super().__init__(lambda: self._table.nodes, report.run.cwd)

    @property
    def first_nan(self) -> NodeValue | None:
        """The first node with a NaN."""
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
        """Return the first node of a name. Raises `DynadiagError` if there is none."""
        for node in self._table.nodes:
            if node.node == name:
                return node
        known = ", ".join(dict.fromkeys(node.node for node in self._table.nodes))
        raise DynadiagError(f"node: no {name!r} is in the values; these are: {known or 'none'}")

    def to_json(self) -> str:
        """Return the document that `dynadiag values --json` writes."""
        run = self.report.run
        return values_json(self._table, run.target, run.torch, run.exit_code).decode("utf-8")

    def __repr__(self) -> str:
        return value_report(self.report, Printer()).rstrip("\n")
