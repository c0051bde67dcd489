"""A NumPy function on the values of a tensor: the torch function of the same meaning.

This is right if both compute the same from the same values. NumPy compares and computes in float64 where torch would
not, so the operands are made float64 where that can change a result. The NumPy array becomes a tensor, so a
`torch.from_numpy` of it is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource

_NUMPY = re.compile(r"^(?:np|numpy)\.(\w+)$")
_WRAPPERS = re.compile(r"^torch\.(?:from_numpy|as_tensor)$")
_HELPER = "\x00helper\x00"
Arguments = dict[str, str]


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """The torch function in place of a NumPy function."""
    file, call = site.file, site.node
    found = _NUMPY.match(file.code(call.func))
    if found is None or (write := _WRITERS.get(found[1])) is None:
        return
    arguments = _arguments(file, call, _PARAMETERS[found[1]])
    text = write(arguments) if arguments is not None else None
    if text is None:
        return
    edits, function = tuple(_edits(file, call, text)), file.code(call.func)
    title = f"use {text.partition('(')[0]} instead of {function}"
    if (helper := _HELPERS.get(found[1])) is not None:
        name, title = file.free_name(f"_{found[1]}", of=call), f"compute `{function}` with functions of torch"
        edits = tuple(replace(each, text=each.text.replace(_HELPER, name)) for each in edits)
        edits = (*edits, _above(file, call, helper, name))
    why = "it computes the same from the same values, and the tensor stays in the graph"
    yield Candidate(title, "source", edits, why)


def _edits(file: ParsedSource, call: cst.Call, text: str) -> Iterator[Edit]:
    """The call replaced, and each `torch.from_numpy` of its result taken away."""
    argument = file.parent(call)
    outer = file.parent(argument) if isinstance(argument, cst.Arg) else None
    if isinstance(outer, cst.Call) and _WRAPPERS.match(file.code(outer.func)):
        yield file.replace(outer, text)
        return
    yield file.replace(call, text)
    statement, function = file.parent(call), file.enclosing(call, cst.FunctionDef)
    if not isinstance(statement, cst.Assign) or function is None:
        return
    name = file.code(statement.targets[0].target)
    for wrapper in file.nodes(cst.Call, function):
        if _WRAPPERS.match(file.code(wrapper.func)) and [file.code(each) for each in wrapper.args] == [name]:
            yield file.replace(wrapper, name)


def _above(file: ParsedSource, call: cst.Call, helper: str, name: str) -> Edit:
    """The edit that puts a helper above what calls it."""
    text = helper.replace(_HELPER, name).replace("    ", file.indent_unit).replace("\n", file.newline)
    return file.insert_line(file.line_above(call), text)


def _arguments(file: ParsedSource, call: cst.Call, parameters: tuple[str, ...]) -> Arguments | None:
    """The texts of the arguments by the names of NumPy's parameters; ``None`` if one is not known."""
    found: Arguments = {}
    for position, argument in enumerate(call.args):
        name = argument.keyword.value if argument.keyword else dict(enumerate(parameters)).get(position)
        if argument.star or name not in parameters:
            return None
        found[name] = _tensor(file, argument.value)
    return found


def _tensor(file: ParsedSource, value: cst.BaseExpression) -> str:
    """The tensor that an argument is the array of; the text itself where it is none."""
    text = file.code(value)
    made = re.sub(r"(?:\.cpu\(\))?\.numpy\(\)$", "", text)
    if made != text:
        return made
    return text


def _is_array(text: str) -> bool:
    """Whether an argument is a Python list, by its text or its name in capitals."""
    return re.match(r"^[\[(]|^[A-Z_][A-Z0-9_]*$|^(?:self\.)?\w+$", text) is not None


def _float64(text: str) -> str:
    if _is_array(text):
        return f"torch.as_tensor({text}, dtype=torch.float64)"
    return f"{text}.double()"


def _digitize(arguments: Arguments) -> str | None:
    if not {"x", "bins"} <= arguments.keys() or arguments.get("right", "False") not in ("False", "True"):
        return None
    right = arguments.get("right", "False") == "False"  # the two libraries mean the opposite
    return f"torch.bucketize({arguments['x']}.double(), {_float64(arguments['bins'])}, right={right})"


def _searchsorted(arguments: Arguments) -> str | None:
    if not {"a", "v"} <= arguments.keys() or "sorter" in arguments:
        return None
    right = arguments.get("side", "'left'").strip("'\"") == "right"
    return f"torch.searchsorted({_float64(arguments['a'])}, {arguments['v']}.double(), right={right})"


def _reduction(name: str) -> Callable[[Arguments], str | None]:
    def write(arguments: Arguments) -> str | None:
        if "a" not in arguments:
            return None
        dim = f", dim={arguments['axis']}" if "axis" in arguments else ""
        keep = f", keepdim={arguments['keepdims']}" if "keepdims" in arguments else ""
        return f"torch.{name}({arguments['a']}{dim}{keep})"

    return write


def _isin(arguments: Arguments) -> str | None:
    if not {"element", "test_elements"} <= arguments.keys() or len(arguments) > 2:
        return None
    tests = arguments["test_elements"]
    tests = f"torch.as_tensor({tests}, device={arguments['element']}.device)" if _is_array(tests) else tests
    return f"torch.isin({arguments['element']}, {tests})"


def _interp(arguments: Arguments) -> str | None:
    if set(arguments) != {"x", "xp", "fp"}:
        return None
    return f"{_HELPER}({arguments['x']}, {arguments['xp']}, {arguments['fp']})"


def _quantile(percent: bool) -> Callable[[Arguments], str | None]:
    def write(arguments: Arguments) -> str | None:
        if not {"a", "q"} <= arguments.keys() <= {"a", "q", "axis", "keepdims"} or not _is_number(arguments["q"]):
            return None
        q = f"{arguments['q']} / 100" if percent else arguments["q"]
        dim = f", dim={arguments['axis']}" if "axis" in arguments else ""
        keep = f", keepdim={arguments['keepdims']}" if "keepdims" in arguments else ""
        return f"torch.nanquantile({arguments['a']}, {q}{dim}{keep})"

    return write


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(?:\.\d+)?", text) is not None


def _trapezoid(arguments: Arguments) -> str | None:
    if "y" not in arguments:
        return None
    x = f", {arguments['x']}" if "x" in arguments else ""
    step = f", dx={arguments['dx']}" if "dx" in arguments else ""
    axis = f", dim={arguments['axis']}" if "axis" in arguments else ""
    return f"torch.trapezoid({arguments['y']}{x}{step}{axis})"


_PARAMETERS: dict[str, tuple[str, ...]] = {
    "digitize": ("x", "bins", "right"),
    "searchsorted": ("a", "v", "side", "sorter"),
    "nansum": ("a", "axis", "dtype", "out", "keepdims"),
    "nanmean": ("a", "axis", "dtype", "out", "keepdims"),
    "isin": ("element", "test_elements"),
    "trapezoid": ("y", "x", "dx", "axis"),
    "interp": ("x", "xp", "fp", "left", "right", "period"),
    "nanquantile": ("a", "q", "axis", "out", "overwrite_input", "method", "keepdims"),
    "nanpercentile": ("a", "q", "axis", "out", "overwrite_input", "method", "keepdims"),
}
# Linear between the points and constant outside of them, in NumPy's own order of operations.
_INTERPOLATE = f"""def {_HELPER}(x, xp, fp):
    x, xp, fp = x.double(), *(torch.as_tensor(each, dtype=torch.float64) for each in (xp, fp))
    left = (torch.searchsorted(xp, x, right=True) - 1).clamp(0, len(xp) - 2)
    slope = (fp[left + 1] - fp[left]) / (xp[left + 1] - xp[left])
    inside = slope * (x - xp[left]) + fp[left]
    return torch.where(x <= xp[0], fp[0], torch.where(x >= xp[-1], fp[-1], inside))


"""
_HELPERS = {"interp": _INTERPOLATE}
_WRITERS: dict[str, Callable[[Arguments], str | None]] = {
    "digitize": _digitize,
    "searchsorted": _searchsorted,
    "nansum": _reduction("nansum"),
    "nanmean": _reduction("nanmean"),
    "isin": _isin,
    "trapezoid": _trapezoid,
    "interp": _interp,
    "nanquantile": _quantile(percent=False),
    "nanpercentile": _quantile(percent=True),
}
