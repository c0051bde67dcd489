"""Rows between two bounds that tensors hold (`rows = x[start:end]`, and at last `out[start:end] = result`): the result
of all rows, kept where a row is between the bounds. Tokens that are sorted by expert are computed so.

How many rows there are depends on the data; how many there are in all does not. Right where each row is treated by
itself, by what does nothing but compute. It computes more, so the proof times a call. In the place of a row that is not
its own it gets ones: what is infinite or NaN there would make the gradient of its parameters NaN, also where the result
is left out. Bounds that are negative count from the end, what looks at its rows together has another result, and so has
what draws random numbers or counts: the proof finds these.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource

_WHY = (
    "a row is treated by itself, and the results of the other rows are left out; all rows are computed for each pair "
    "of bounds, so it pays for few of these or few rows"
)
_SLICE = m.SubscriptElement(m.Slice(lower=m.Name(), upper=m.Name(), step=None))
_ROWS = m.Subscript(value=m.Name(), slice=[_SLICE])
_READ = m.SimpleStatementLine([m.Assign([m.AssignTarget(m.Name())], _ROWS)])
_WRITE = m.SimpleStatementLine([m.Assign([m.AssignTarget(_ROWS)])])


def candidates(site: Site[cst.Subscript]) -> Iterator[Candidate]:
    """The change of the block that reads and writes the rows."""
    file, node = site.file, site.node
    line = file.statement(node)
    block, function = file.parent(line), file.enclosing(line, cst.FunctionDef)
    if not m.matches(line, _READ) or not isinstance(block, cst.IndentedBlock):
        return
    assert isinstance(line, cst.SimpleStatementLine)
    bounds = _bounds(node)
    behind = block.body[block.body.index(line) + 1 :]
    writes = [each for each in behind if m.matches(each, _WRITE) and _bounds(_target(each)) == bounds]
    used = {name for name in file.nodes(cst.Name, block) if name.value in bounds}
    assigned = {name for each in file.nodes(cst.AssignTarget, block) for name in file.nodes(cst.Name, each.target)}
    kept = {name for each in (node, *map(_target, writes)) for name in file.nodes(cst.Name, each)}
    if len(writes) != 1 or len(used - kept) != len(bounds) or not used - kept <= assigned:
        return
    out = cst.ensure_type(_target(writes[0]).value, cst.Name).value
    if not isinstance(function, cst.FunctionDef) or not _is_local(file, function, out):
        return
    title = "compute all rows, and keep those between the bounds"
    yield Candidate(title, "source", tuple(_edits(file, line, node, writes[0], bounds)), _WHY)


def _edits(
    file: ParsedSource, line: cst.BaseStatement, rows: cst.Subscript, write: cst.BaseStatement, bounds: tuple[str, str]
) -> Iterator[Edit]:
    own, all_rows, out = file.free_name("is_own"), file.code(rows.value), file.code(_target(write).value)
    start, end = bounds
    places = f"torch.arange({all_rows}.shape[0], device={all_rows}.device)"
    pad, newline = file.indent(line), file.newline
    lines = [f"{own} = {places}", f"{own} = ({start} <= {own}) & ({own} < {end})"]
    yield file.insert_line(file.line(line), "".join(f"{pad}{each}{newline}" for each in lines))
    yield file.replace(rows, f"torch.where({_wide(own, all_rows)}, {all_rows}, 1)")
    value = _assign(write).value
    result = file.code(value) if isinstance(value, cst.Name) else f"({file.code(value)})"
    text = f"{out} = torch.where({_wide(own, out)}, {result}.to({out}.dtype), {out})"
    yield file.replace(_assign(write), text)


def _wide(own: str, tensor: str) -> str:
    """Which rows are own, as a tensor that stands beside another one of as many rows."""
    return f"{own}.reshape(-1, *[1] * ({tensor}.dim() - 1))"


def _assign(line: cst.BaseStatement | cst.BaseSmallStatement) -> cst.Assign:
    return cst.ensure_type(cst.ensure_type(line, cst.SimpleStatementLine).body[0], cst.Assign)


def _target(line: cst.BaseStatement | cst.BaseSmallStatement) -> cst.Subscript:
    return cst.ensure_type(_assign(line).targets[0].target, cst.Subscript)


def _bounds(rows: cst.Subscript) -> tuple[str, str]:
    part = cst.ensure_type(rows.slice[0].slice, cst.Slice)
    return cst.ensure_type(part.lower, cst.Name).value, cst.ensure_type(part.upper, cst.Name).value


def _is_local(file: ParsedSource, function: cst.FunctionDef, name: str) -> bool:
    """Whether a call in the function makes what the name is bound to, once: nobody else has it."""
    made = [each for each in file.nodes(cst.Assign, function) if m.matches(each.targets[0].target, m.Name(name))]
    return len(made) == 1 and m.matches(made[0].value, m.Call())
