"""Attention of each segment of a packed sequence by itself (`torch.split(x, lengths.tolist())` and a loop): one call
for all, with a mask that lets each position see its own segment.

Right because the masked scores are so small that their weight is exactly zero, so each position has the same weights as
by itself, where all are finite: zero times a NaN of another segment is NaN. The lengths stay on the device. Where they
are not those of the sequence, `torch.split` raises, and an assertion in the graph does. A function that does more with
the segments than attention (a position in it, its length), or that reads the mask in another way, gives other results,
and the proof sees that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource, callee_name

_WHY = (
    "masked scores have a weight of exactly zero, so each position attends to its own segment alone; a NaN or an "
    "infinity in one segment spreads to the others, so inputs with these were not compared; time and memory grow by "
    "the square of the whole length"
)


@dataclass(frozen=True, slots=True)
class _Segments:
    """Three statements in a row: tensors split into segments, a call for each, and the results in one tensor."""

    first: cst.SimpleStatementLine
    last: cst.SimpleStatementLine
    tensors: list[str]
    dimension: str
    bounds: str  # of the segments: where the first begins, then where each ends
    lengths: str
    names: list[str]  # of a segment of each tensor
    call: cst.BaseExpression
    result: str


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """The one call, with its mask."""
    file, call = site.file, site.node
    found = _segments(file, call) if callee_name(call) == "tolist" else None
    if found is None:
        return
    mask = next((each for each in file.nodes(cst.Arg, found.call) if m.matches(each, _NO_MASK)), None)
    if mask is None:
        return
    names = {
        name: file.free_name(name, inside=file.enclosing(call, cst.FunctionDef))
        for name in ("places", "segments", "same")
    }
    query, bounds = found.tensors[0], found.bounds
    text = file.code(found.call)
    start = file.range(found.call)[0]
    place = file.range(mask.value)
    text = f"{text[: place[0] - start]}{names['same']}{text[place[1] - start :]}"
    tensors = dict(zip(found.names, found.tensors, strict=True))
    text = re.sub(rf"(?<![\w.])(?:{'|'.join(tensors)})(?![\w=])", lambda name: tensors[name[0]], text)
    size = f"{query}.shape[{found.dimension}]"
    places, same, far = names["places"], names["same"], f"torch.finfo({query}.dtype).min"
    lines = [
        f"torch._assert_async(({found.lengths} >= 0).all() & ({found.lengths}.sum() == {size}))",
        f"{places} = torch.arange({size}, dtype={bounds}.dtype, device={bounds}.device)",
        f"{names['segments']} = torch.searchsorted({bounds}, {places} + {bounds}[0], right=True)",
        f"{same} = ({names['segments']}[:, None] == {names['segments']})[None, None]",
        f"{same} = torch.zeros_like({same}, dtype={query}.dtype).masked_fill(~{same}, {far})",
        f"{found.result} = {text}",
    ]
    pad, end = file.indent(found.first), file.newline
    edit = file.replace_lines(found.first, found.last, "".join(f"{pad}{line}{end}" for line in lines))
    yield Candidate("attend to all segments at once, with a mask", "source", (edit,), _WHY, finite=(edit,))


_NO_MASK = m.Arg(keyword=m.Name("attention_mask") | m.Name("attn_mask") | m.Name("mask"), value=m.Name("None"))
_SPLIT = m.ListComp(
    m.Call(m.Attribute(m.Name("torch"), m.Name("split")), [m.Arg(m.Name()), m.Arg(m.Call()), m.Arg(m.Integer())]),
    m.CompFor(m.Name(), m.Tuple()),
)


def _segments(file: ParsedSource, call: cst.Call) -> _Segments | None:
    """The statements around the call that reads the lengths, if they are of this form."""
    split, statement = file.enclosing(call, cst.ListComp), file.statement(call)
    block = file.parent(statement)
    if split is None or not m.matches(split, _SPLIT) or not isinstance(block, cst.IndentedBlock):
        return None
    assert isinstance(split, cst.ListComp)
    place = list(block.body).index(statement)  # type: ignore[arg-type]  # it is in the block
    lines = list(block.body)[place : place + 3]
    values = [_assigned(file, line) for line in lines]
    bounds = _bounds(file, block, place, file.code(call.func.value)) if isinstance(call.func, cst.Attribute) else None
    if len(lines) < 3 or None in values or bounds is None:
        return None
    (parts, _), (results, each), (result, joined) = values  # type: ignore[misc]  # none is None
    calls = m.ListComp(for_in=m.CompFor(m.Tuple(), m.Call(m.Name("zip"))))
    joins = m.Call(m.Attribute(m.Name("torch"), m.Name("cat")))
    if not m.matches(each, calls) or not m.matches(joined, joins) or not isinstance(each, cst.ListComp):
        return None
    one_loop = file.code(each.for_in.iter) == f"zip(*{parts})" and each.for_in.inner_for_in is None
    assert isinstance(joined, cst.Call)
    assert isinstance(split.elt, cst.Call)
    assert isinstance(split.for_in.iter, cst.Tuple)
    assert isinstance(each.for_in.target, cst.Tuple)
    tensors = [file.code(element.value) for element in split.for_in.iter.elements]
    names = [file.code(element.value) for element in each.for_in.target.elements]
    if not one_loop or file.code(joined.args[0].value) != results or len(names) != len(tensors):
        return None
    if each.for_in.ifs or split.for_in.ifs or not all(name.isidentifier() for name in names):
        return None
    dimension = file.code(split.elt.args[2].value)
    lengths = file.code(call.func.value)  # type: ignore[attr-defined]  # `bounds` has seen it
    return _Segments(lines[0], lines[2], tensors, dimension, bounds, lengths, names, each.elt, result)  # type: ignore[arg-type]  # simple lines


def _assigned(file: ParsedSource, line: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """The name that a statement assigns, and its value."""
    part = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    if not isinstance(part, cst.Assign) or len(part.targets) != 1:
        return None
    return file.code(part.targets[0].target), part.value


def _bounds(file: ParsedSource, block: cst.IndentedBlock, place: int, lengths: str) -> str | None:
    """The name of the bounds whose differences are the lengths, by the statement in front."""
    made = _assigned(file, block.body[place - 1]) if place else None
    found = re.fullmatch(r"(\w+)\[1:\] - (\w+)\[:-1\]", file.code(made[1])) if made and made[0] == lengths else None
    return found[1] if found is not None and found[1] == found[2] else None
