"""`print`, `logging` and `warnings` in a compiled function: called after the graph, or printed from within it.

Right where the text and its place among all other output stay the same. `reorderable_logging_functions` makes the call
after the graph has run; `torch._higher_order_ops.print` is an operator of the graph and keeps its place among others
with effects. What else is printed meanwhile decides, and the proof compares both streams.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import replace

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource, callee_name
from dynadiag.fixes.rewrites.config_lines import logging_line
from dynadiag.fixes.rewrites.effect_function import operator_of
from dynadiag.fixes.rewrites.effect_ways import AFTER, COMPILING, WITHIN, Way

_LEVELS = "debug|info|warning|error|critical|exception|warning_once|info_once|warning_advice"  # Transformers has more
_FUNCTION = re.compile(rf"^(?:print|warnings\.warn|logging\.(?:{_LEVELS}))$")
# The same logger wherever it is asked for.
_GET_LOGGER = r"(?:logging\.)?(?:getLogger|get_logger)\((?:__name__|\"[^\"]*\"|'[^']*'|)\)"
_LOGGER = re.compile(rf"^([A-Za-z_]\w*|self\.\w+|{_GET_LOGGER})\.({_LEVELS})$")


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """Both ways for a call at the break that prints."""
    file, call = site.file, site.node
    yield from called_after(file, call, _operator(file, call, _log_name(file, call)))
    if file.code(call.func) == "print" and (edits := _formatted_arguments(file, call)):
        plain = logging_line(file, "print")
        yield replace(plain, title=f"{plain.title}, with formatted values", edits=(*plain.edits, *edits))
    if (edit := graph_print(file, call)) is not None:
        yield Candidate(
            "print from within the graph with `torch._higher_order_ops.print`",
            "source",
            (edit,),
            "the operator prints the same text at its place in the graph, in order with other effects",
        )
    if edits := _graph_warning(file, call):
        title = f"call `{file.code(call.func)}` from within the graph, by a function of its own"
        yield Candidate(title, "source", edits, "torch runs the function as it is, at its place in the graph")


def called_after(file: ParsedSource, call: cst.Call, operator: tuple[Edit, ...] = ()) -> Iterator[Candidate]:
    """The changes that let torch make a call after the graph, or a logger's in it. None of them changes the call's
    arguments but ``operator``, which makes that of a logger an operator of its own.
    """
    function = file.code(call.func)
    if _FUNCTION.match(function) or _is_warn(file, function):
        yield logging_line(file, function)
    if (found := _LOGGER.match(function)) and (logger := _logger_of(file, found[1])) is not None:
        yield from _logger(file, call, logger, found[2], operator)
    if (helper := _helper(file, call)) is not None:
        yield _helper_after(file, helper)


def all_in_graph(file: ParsedSource, call: cst.Call, *, behind: bool = False) -> tuple[Edit, ...]:
    """Return the edits that make a call that prints, and all such calls before it, operators of the graph; with
    ``behind`` also those behind it.

    A call in the graph prints before those that torch moves behind the graph. Empty if one call cannot be an operator.
    """
    function = file.enclosing(call, cst.FunctionDef)
    chosen = [each for each in file.nodes(cst.Call, function) if behind or file.range(each) <= file.range(call)]
    found = list[Edit]()
    for each in (each for each in chosen if prints(file, each)):
        edits = in_graph(file, each)
        if not edits:
            return ()
        found += edits
    return tuple(found)


def in_graph(file: ParsedSource, call: cst.Call) -> tuple[Edit, ...]:
    """The edits that make a call that prints, warns or logs an operator of the graph. Empty if it cannot be one."""
    if (edit := graph_print(file, call)) is not None:
        return (edit,)
    if _LOGGER.match(file.code(call.func)):
        return _operator(file, call, _log_name(file, call)) if prints(file, call) else ()
    return _graph_warning(file, call)


def _log_name(file: ParsedSource, call: cst.Call) -> str:
    return file.free_name(f"_log_{callee_name(call)}", of=call)


def _graph_warning(file: ParsedSource, call: cst.Call) -> tuple[Edit, ...]:
    """A warning or a message of the root logger, by a function of the module that torch runs in the graph."""
    function = file.code(call.func)
    known = (_FUNCTION.match(function) and function != "print") or _is_warn(file, function)
    if not known or any(each.keyword is not None or each.star for each in call.args):
        return ()
    kind = _category(file, call)
    wanted = "_".join(["", function.rpartition(".")[2], *([kind.lower()] if kind else [])])
    name, end, unit = file.free_name(wanted, of=call), file.newline, file.indent_unit
    if edits := _operator(file, call, name):
        return edits
    given = ", ".join(["*args", *([kind] if kind else [])])
    text, edits = WITHIN.definition(file, name, f"def {name}(*args):", f"{unit}{function}({given})")
    called = file.replace(call, f"{name}({file.code(call.args[0].value)})") if kind else file.replace(call.func, name)
    return *edits, file.insert_line(file.line_above(call), f"{text}{end}{end}{end}"), called


def _operator(file: ParsedSource, call: cst.Call, name: str) -> tuple[Edit, ...]:
    """The edits that make a call an operator of its own in the graph. Empty if types of its values are not known."""
    function = file.enclosing(call, cst.FunctionDef)
    made = operator_of(file, function, call) if isinstance(function, cst.FunctionDef) else None
    if made is None:
        return ()
    definition, text = made.written(name, WITHIN)
    return *definition, file.replace(call, text)


def _category(file: ParsedSource, call: cst.Call) -> str | None:
    """Python's class of a warning that a call names behind its text: a class is nothing that a graph has."""
    name = file.code(call.args[1].value) if len(call.args) == 2 else ""
    known = getattr(builtins, name, None)
    return name if isinstance(known, type) and issubclass(known, Warning) else None


def prints(file: ParsedSource, call: cst.Call) -> bool:
    """Whether a call prints, warns or logs."""
    function = file.code(call.func)
    logger = _LOGGER.match(function)
    known = _FUNCTION.match(function) is not None or _is_warn(file, function)
    return known or (logger is not None and _logger_of(file, logger[1]) is not None)


def _formatted_arguments(file: ParsedSource, call: cst.Call) -> tuple[Edit, ...]:
    """Each value that is printed by itself as an f-string: torch takes texts, and no tuples or types, into such a call.
    A tensor prints otherwise then, which the proof sees.
    """
    values = [each.value for each in call.args if each.keyword is None and not each.star]
    plain = [each for each in values if not isinstance(each, (cst.BaseString, cst.BaseNumber))]
    texts = [(each, file.code(each)) for each in plain]
    quotes = [(each, text, next((mark for mark in "\"'" if mark not in text), None)) for each, text in texts]
    if any(mark is None or "\\" in text or "\n" in text for _, text, mark in quotes):
        return ()
    return tuple(file.replace(each, f"f{mark}{{{text}}}{mark}") for each, text, mark in quotes)


def _is_warn(file: ParsedSource, function: str) -> bool:
    return function == "warn" and re.search(r"^from warnings import .*\bwarn\b", file.text, re.M) is not None


def _logger_of(file: ParsedSource, text: str) -> str | None:
    """The logger that a call uses, as the whole module can name it; ``None`` if it is not known to be one."""
    if re.fullmatch(_GET_LOGGER, text):
        return text
    if not text.startswith("self."):
        return text if re.search(rf"^{text}\s*=\s*(?:logging\.)?(?:getLogger|get_logger)\(", file.text, re.M) else None
    made = [file.code(each.value) for each in file.nodes(cst.Assign) if file.code(each.targets[0].target) == text]
    return made[0] if len(made) == 1 and re.fullmatch(_GET_LOGGER, made[0]) else None


def _logger(
    file: ParsedSource, call: cst.Call, logger: str, level: str, operator: tuple[Edit, ...]
) -> Iterator[Candidate]:
    """A function of the module that logs: torch can call a function, and no method of a logger. It is called after the
    graph, or in it: of a function that is inlined, torch forgets what is to be called afterwards. What is logged once
    is logged while torch compiles.
    """
    named = logger.isidentifier()
    name, end, unit = f"_{logger.lower().strip('_') if named else 'log'}_{level}", file.newline, file.indent_unit
    behind = next(each for each in file.module.body if re.match(rf"{logger}\s*=", file.code(each))) if named else None

    def candidate(way: Way, title: str, more: str, why: str) -> Candidate:
        line = f"{unit}{logger}.{level}(*args{more})"
        text, helpers = way.definition(file, name, f"def {name}(*args):", line)
        above = file.insert_line(file.line_above(call), f"{text}{end}{end}{end}")
        below = behind and file.insert_line(file.end_line(behind) + 1, f"{end}{end}{text}{end}")
        edits = *helpers, below or above, file.replace(call.func, name)
        return Candidate(f"{title}, by the function `{name}`", "source", edits, why)

    if level.endswith("_once"):
        why = "the message is logged once in a process, and the first call is the one that torch compiles"
        yield candidate(COMPILING, "let torch log while it compiles", "", why)
    why = "the same message is logged when the graph has run, in the same order among its like"
    yield candidate(AFTER, "let torch log after the graph", ", stacklevel=3", why)
    why = "torch runs the function as it is, at its place in the graph"
    within = candidate(WITHIN, "let torch log from within the graph", "", why)
    yield replace(within, edits=operator or within.edits)


def _helper(file: ParsedSource, call: cst.Call) -> cst.FunctionDef | None:
    """The function of the module that makes the call, if it returns nothing, so that torch may call it later."""
    found = file.enclosing(call, cst.FunctionDef)
    if not isinstance(found, cst.FunctionDef) or found not in file.module.body or found.decorators:
        return None
    results = any(each.value is not None for each in file.nodes(cst.Return, found))
    own = [name for name in file.nodes(cst.Call) if file.code(name.func) == found.name.value]
    statements = own and all(isinstance(file.parent(each), cst.Expr) for each in own)
    return found if statements and not results and next(file.nodes(cst.Yield, found), None) is None else None


def _helper_after(file: ParsedSource, helper: cst.FunctionDef) -> Candidate:
    """A function that only has effects: torch calls it after the graph."""
    name, end = helper.name.value, file.newline
    line = f"torch._dynamo.config.reorderable_logging_functions.add({name}){end}"
    return Candidate(
        f"let torch call `{name}` after the graph",
        "config",
        (file.insert_line(file.end_line(helper) + 1, f"{end}{end}{line}"),),
        "it returns nothing, and is called with the same arguments, in the same order, when the graph has run",
    )


def graph_print(file: ParsedSource, call: cst.Call) -> Edit | None:
    """A call of `print` as an operator of the graph; ``None`` if its text cannot be a format string."""
    if file.code(call.func) != "print" or any(argument.keyword is not None or argument.star for argument in call.args):
        return None
    pieces, values = [], []
    for argument in call.args:
        made = _format(file, argument.value)
        if made is None:
            return None
        pieces.append(made[0])
        values += made[1]
    quote = _quote(file, call)
    text = "".join(map(_escaped, " ".join(pieces))).replace(quote, f"\\{quote}")
    return file.replace(call, f"torch._higher_order_ops.print({', '.join([f'{quote}{text}{quote}', *values])})")


def _quote(file: ParsedSource, call: cst.Call) -> str:
    found = re.search(r"""["']""", file.code(call))
    return found[0] if found else '"'


def _format(file: ParsedSource, value: cst.BaseExpression) -> tuple[str, list[str]] | None:
    """A part of a format string and the values for it."""
    if isinstance(value, cst.SimpleString) and isinstance(text := value.evaluated_value, str):
        return text.replace("{", "{{").replace("}", "}}"), []
    if isinstance(value, cst.FormattedString):
        return _formatted(file, value)
    if m.matches(value, m.ConcatenatedString()):
        return None
    return "{}", [file.code(value)]


def _formatted(file: ParsedSource, value: cst.FormattedString) -> tuple[str, list[str]] | None:
    pieces, values = [], []
    if "r" in value.start.lower():
        return None
    for part in value.parts:
        if isinstance(part, cst.FormattedStringText):
            pieces.append(ast.literal_eval(f"{value.end}{part.value}{value.end}"))  # doubled braces stay
        elif isinstance(part, cst.FormattedStringExpression):
            if part.equal is not None or (spec := _spec(part)) is None:
                return None
            pieces.append(f"{{{spec}}}")
            values.append(file.code(part.expression))
    return "".join(pieces), values


def _escaped(char: str) -> str:
    return char if char.isprintable() and char != "\\" else char.encode("unicode_escape").decode()


def _spec(part: cst.FormattedStringExpression) -> str | None:
    """Conversion and format of a value, as `str.format` has them."""
    text = f"!{part.conversion}" if part.conversion else ""
    if part.format_spec is None:
        return text
    if any(not isinstance(piece, cst.FormattedStringText) for piece in part.format_spec):
        return None
    return text + ":" + "".join(piece.value for piece in part.format_spec if isinstance(piece, cst.FormattedStringText))
