"""The graph node under the cursor: what it computes, its inputs and its users."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynadiag.kernels.graph_parser import ARGUMENT, IN_PLACE, LONE_ARGUMENT, STATEMENT
from dynadiag.render.readable_graph import attribute_name
from tui.documents import Document
from tui.location import Location
from tui.styled_text import Fragment, Line, line, one_line, printable_code

_MAX_USERS = 200  # users listed; an input may have 50,000
_SIGNATURE = re.compile(r"\s*def forward\(")  # of Dynamo's graph with its arguments
_RENAMED = re.compile(r"\s*(?P<name>\w+) = (?P<of>\w+)(?:;.*)?")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_FREES_SEPARATOR = ";  "  # a printed line frees nodes after this


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """A node. ``inputs`` and ``users`` are pairs of a name and a line (from 0). Inputs of the graph have the names that
    the graph is shown with.
    """

    name: str
    value: str  # such as "f32[4, 16][16, 1]cpu"; empty if not printed
    expression: str
    inputs: tuple[tuple[str, int], ...]
    users: tuple[tuple[str, int], ...]
    hidden_users: int  # number of users that are not listed


def node_on_line(lines: Sequence[str], defined: Mapping[str, int], index: int) -> NodeDetails | None:
    """Return the node that a line defines, or ``None`` if it defines none."""
    found = _statement(lines[index])
    if found is not None:
        name, value, expression = found
    elif (argument := LONE_ARGUMENT.match(lines[index])) is not None:
        name, value, expression = argument[1], argument[2], ""
    else:
        return None
    if defined.get(name) != index:
        return None
    places = {**defined, **_arguments(lines)}
    names = dict.fromkeys(word for word in _NAME.findall(expression) if word in places and word != name)
    users = _users(lines, name, index)
    shown = {word: _shown(word, defined) for word in names}
    inputs = tuple((shown[word], places[word]) for word in names)
    name, expression = _shown(name, defined), _NAME.sub(lambda found: shown.get(found[0], found[0]), expression)
    return NodeDetails(name, value, expression, inputs, tuple(users[:_MAX_USERS]), max(0, len(users) - _MAX_USERS))


def value_on_line(text: str) -> str:
    """Return the value that torch printed for the node that a line defines, such as ``f32[4][1]cpu``."""
    found = _statement(text)
    return found[1] if found else ""


def _statement(text: str) -> tuple[str, str, str] | None:
    """The node that a line defines, its value as printed, and the expression that makes it; of one in place what it
    does."""
    if found := STATEMENT.match(text):
        return found[1], found[2] or "", found[3].partition(_FREES_SEPARATOR)[0]
    done = IN_PLACE.match(text)
    return (done["name"], done["type"] or "", done["done"]) if done else None


def _shown(name: str, defined: Mapping[str, int]) -> str:
    """The name of a node in the readable graph. That of an input may be a node's, too."""
    readable = attribute_name(name)
    return f"input.{readable}" if readable != name and readable in defined else readable


def _arguments(lines: Sequence[str]) -> dict[str, int]:
    """The arguments that stand on the line of the signature itself, and the names that they are given below it.

    The readable graph has no lines that only name them again.
    """
    signature = next((number for number, text in enumerate(lines) if _SIGNATURE.match(text)), None)
    if signature is None:
        return {}
    found = [argument[1] for argument in ARGUMENT.finditer(lines[signature])]
    renamed = map(_RENAMED.fullmatch, lines[signature + 1 : signature + 1 + len(found)])
    return dict.fromkeys([*found, *(each["name"] for each in renamed if each and each["of"] in found)], signature)


def _users(lines: Sequence[str], name: str, index: int) -> list[tuple[str, int]]:
    word = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
    found = []
    returned = False  # torch may print each result on a line of its own
    for number in range(index + 1, len(lines)):
        line = lines[number]
        returned = (returned or line.lstrip().startswith("return")) and not line.lstrip().startswith((")", "class "))
        if name in line:
            statement = _statement(line)
            if statement is not None and word.search(statement[2]):
                found.append((statement[0], number))
            elif returned and word.search(line.partition("#")[0]):
                found.append(("output", number))
    return found


def node_lines(node: NodeDetails | None, document: Document | None, compile_id: str | None) -> list[Line]:
    """Return the details of the node under the cursor, with the line numbers of its pane, which shows ``document``."""
    if node is None or document is None:
        return [line(("no node of the graph is defined on this line or made of it", "dim"))]
    parts: list[str | Fragment] = [(node.name, "key"), (f"  {one_line(node.value)}", "good")]
    made = [line(*parts, (f"  {printable_code(node.expression)}", ""))]
    for role, pairs in (("input", node.inputs), ("user", node.users)):
        if not pairs:
            made.append(line((f"no {role}", "dim")))
        for name, place in pairs:
            target = Location("code", compile_id, document=document.ref.key, line=place + 1)
            shown = document.line_of(place) + 1
            made.append(line((f"{role:<6} ", "dim"), name, (f"  line {shown:,}", "dim"), to=target))
    if node.hidden_users:
        made.append(line((f"and {node.hidden_users:,} more users", "dim")))
    return made
