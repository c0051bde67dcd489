"""The loop of a mixture of experts over the experts that were chosen (`nonzero`, `torch.where` of one mask, a gather
and `index_add_`): each expert on all tokens, its result kept where it was chosen.

The number of chosen experts and of their tokens depends on the data; the number of all experts does not. Right where an
expert treats each token by itself and does nothing but compute. It computes more, so it pays for few experts or few
tokens; the proof times a call. An expert that looks at its tokens together, draws random numbers or counts its calls is
found out by the proof. In the place of a token of others an expert gets ones: what is infinite or NaN there would make
the gradient of its parameters NaN, also where the result is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.conditions import Unsuitable

_WHY = (
    "an expert treats each token by itself, and the others' results are left out; each expert computes all tokens, so "
    "it pays for few experts or few tokens"
)
_OF_HIT = re.compile(r"(?:torch\.greater\((?P<a>\w+)\.sum\(.*\), 0\)|\((?P<b>\w+)\.sum\(.*\) > 0\))\.nonzero\(\)", re.S)


@dataclass(frozen=True, slots=True)
class _Loop:
    """The loop, the statement that finds the chosen experts, and the names in it."""

    node: cst.For
    hits: cst.SimpleStatementLine
    expert: str
    mask: str  # one row of choices and tokens for each expert
    where: cst.SimpleStatementLine
    choice: str  # the position of the choice, and the token, of each token of the expert
    token: str


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """The loop over all experts."""
    file = site.file
    function = file.enclosing(site.node, cst.FunctionDef)
    if not isinstance(function, cst.FunctionDef):
        return
    for loop in (found for each in file.nodes(cst.For, function) if (found := _loop(file, function, each)) is not None):
        with suppress(Unsuitable):
            title = "compute each expert on all tokens, and keep what was chosen"
            yield Candidate(title, "source", tuple(_edits(file, function, loop)), _WHY)


def _loop(file: ParsedSource, function: cst.FunctionDef, node: cst.For) -> _Loop | None:
    """The parts of a loop of this form."""
    if not isinstance(node.target, cst.Name) or not isinstance(node.body, cst.IndentedBlock) or node.orelse is not None:
        return None
    assigned = [
        each for each in file.nodes(cst.Assign, function) if file.code(each.targets[0].target) == file.code(node.iter)
    ]
    found = _OF_HIT.fullmatch(file.code(assigned[0].value)) if len(assigned) == 1 else None
    mask = (found["a"] or found["b"]) if found is not None else ""
    where = next((each for each in node.body.body if _finds_tokens(file, each, mask, node.target.value)), None)
    if found is None or where is None or not isinstance(hits := file.statement(assigned[0]), cst.SimpleStatementLine):
        return None
    names = where.body[0].targets[0].target.elements  # type: ignore[attr-defined]  # `_finds_tokens` saw a tuple
    return _Loop(node, hits, node.target.value, mask, where, *(file.code(each.value) for each in names))  # type: ignore[arg-type]  # it has two names


def _finds_tokens(file: ParsedSource, line: cst.CSTNode, mask: str, expert: str) -> bool:
    """Whether a statement is `choice, token = torch.where(mask[expert])`."""
    names = m.Tuple([m.Element(m.Name()), m.Element(m.Name())])
    form = m.SimpleStatementLine([m.Assign([m.AssignTarget(names)], m.Call(args=[m.Arg()]))])
    if not m.matches(line, form):
        return False
    value = file.code(line.body[0].value)  # type: ignore[attr-defined]  # the form
    return re.fullmatch(rf"torch\.where\({mask}\[{expert}\](?:\.squeeze\(0\))?\)", value) is not None


def _edits(file: ParsedSource, function: cst.FunctionDef, loop: _Loop) -> Iterator[Edit]:
    """The edits of the loop. Raises `Unsuitable` where what is left reads the tokens of an expert."""
    chosen, own, weight = (file.free_name(name, inside=function) for name in ("chosen", "is_own", "weight"))
    body, pad, end = list(loop.node.body.body), file.indent(loop.where), file.newline
    uses = [name for name in file.nodes(cst.Name, function) if name.value == file.code(loop.node.iter)]
    if len(uses) != 2:
        raise Unsuitable("the experts that were hit are used elsewhere")
    yield file.remove(loop.hits)
    yield file.replace(loop.node.iter, f"range({loop.mask}.shape[0])")
    weights = None
    for line in body:
        text = file.code(line) if isinstance(line, cst.SimpleStatementLine) else ""
        if line is loop.where or not isinstance(line, cst.SimpleStatementLine):
            continue
        if re.fullmatch(rf"{loop.expert} = {loop.expert}(?:\[0\]|\.squeeze\(\w*\)|\.item\(\))", text):
            yield file.remove(line)
            continue
        made = re.sub(rf"\b(\w+)\[{loop.token}, {loop.choice}, None\]", rf"{weight}[:, None]", text)
        if made != text:
            (weights,) = {each[1] for each in re.finditer(rf"\b(\w+)\[{loop.token}, {loop.choice}, None\]", text)}
        state = rf"\b(\w+)(?:\[None, {loop.token}\]\.reshape\(-1, [\w.]+\)|\[{loop.token}\](?! \+?=))"
        made = re.sub(state, rf"torch.where({own}, \1, 1)", made)
        made = _added(made, loop.token, own)
        if re.search(rf"\b(?:{loop.token}|{loop.choice})\b", made):
            raise Unsuitable("more is done with the tokens of an expert")
        if made != text:
            yield file.replace(line, made)
    lines = [f"{chosen} = {loop.mask}[{loop.expert}].bool()", f"{own} = {chosen}.any(0)[:, None]"]
    if weights is not None:
        lines.append(f"{weight} = torch.where({chosen}, {weights}.t(), 0).sum(0)")
    yield file.replace_lines(loop.where, loop.where, "".join(f"{pad}{line}{end}" for line in lines))


def _added(text: str, token: str, own: str) -> str:
    """A statement that adds to the tokens of an expert: to all, and zero where the token is another one's."""
    found = re.fullmatch(rf"(\w+)\.index_add_\(0, {token}, (.*)\)", text, re.S)
    return text if found is None else f"{found[1]} = {found[1]} + torch.where({own}, {found[2]}, 0)"
