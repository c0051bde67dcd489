"""A size that changes from call to call: marked as dynamic where the function is called, or for all of its compiles.

This is right because a mark, or ``dynamic=True``, changes no value: it makes torch compile with a symbol from the first
call on. If the code needs the number (a loop over it), torch refuses or recompiles all the same, and the proof sees
that. A message with the size in it needs the number where Python makes its text, and not where the graph does.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.call_sites import CallSite, call_sites, calling_file
from dynadiag.fixes.rewrites.compiled_methods import compile_calls
from dynadiag.fixes.rewrites.printing import all_in_graph, in_graph, prints
from dynadiag.recording.torch_text.sources import is_local, size_of_argument

# A size of 1 is compiled for itself, also where it is dynamic; the last mark is for sizes that no code depends on.
MARKS = ("mark_dynamic", "maybe_mark_dynamic", "decorators.mark_unbacked")
_MAX_COMPILES = 3
_MORE = ("", ", with what comes before it", ", with all that is printed")
_WHY = "torch compiles with a symbol for the size, and no value changes"


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """Marks in front of the call, then ``dynamic=True``."""
    sizes = [size for source in (problem.source, *problem.also) if (size := size_of_argument(source))]
    wanted = [size for size in sizes if size[0] != "self"]
    names = list(dict.fromkeys(name for name, *_ in wanted))
    if problem.kind != "recompile" or not sizes or is_local(problem.source):
        return
    printed = _printed(problem, sources)
    special = any(value in ("0", "1") for value in (*problem.was, problem.now))
    for site in call_sites(problem, sources, names) if wanted else ():
        for more, edits in zip(_MORE, printed, strict=False):
            title = f"mark the size with `torch._dynamo.mark_dynamic`, and print it from within the graph{more}"
            changes = (*_marks(site, wanted, "mark_dynamic"), *edits)
            yield Candidate(title, "source", changes, f"{_WHY}; the operator prints the same text")
        for function in MARKS if special else MARKS[:-1]:
            title = f"mark the size with `torch._dynamo.{function}`"
            yield Candidate(title, "argument", _marks(site, wanted, function), _WHY)
    file = calling_file(problem, sources)
    for title, edit in dynamic_compiles(file) if file is not None else ():
        yield Candidate(title, "argument", (edit,), _WHY)


def _printed(problem: FixProblem, sources: Sources) -> list[tuple[Edit, ...]]:
    """Return the edits that make the call that shows the size (`print`, a warning, a log) an operator of the graph.

    The first choice is that call alone, then all that its function prints up to there, then all that it prints.
    """
    file = sources.file(problem.guarded.file) if problem.guarded is not None else None
    call = _shown_at(file, problem.guarded.line) if file is not None and problem.guarded is not None else None
    if file is None or call is None:
        return []
    choices = in_graph(file, call), all_in_graph(file, call), all_in_graph(file, call, behind=True)
    return list(dict.fromkeys(edits for edits in choices if edits))


def _shown_at(file: ParsedSource, line: int | None) -> cst.Call | None:
    """The call on a line that prints, warns or logs."""
    around = (each for each in file.nodes(cst.Call) if line and file.line(each) <= line <= file.end_line(each))
    return next((each for each in around if prints(file, each)), None)


def _marks(site: CallSite, wanted: list[tuple[str, str, int]], function: str) -> tuple[Edit, ...]:
    """Lines in front of the statement of a call; an argument that has no name there gets one."""
    file, statement = site.file, site.file.statement(site.call)
    lines, edits, names = [], [], dict[str, str]()
    for name in dict.fromkeys(name for name, *_ in wanted):
        if name not in site.arguments:
            names[name] = f'{site.mapping.value if site.mapping else ""}["{name}"]'
            continue
        value = site.arguments[name].value
        names[name] = file.code(value)
        if not isinstance(value, (cst.Name, cst.Attribute)):
            own = name if name.isidentifier() else "inputs"
            around = file.enclosing(site.call, cst.FunctionDef)
            names[name] = file.free_name(own, f"{own}_given", inside=around, of=value)
            lines.append(f"{names[name]} = {file.code(value)}")
            edits.append(file.replace(value, names[name]))
    lines += [f"torch._dynamo.{function}({names[name]}{path}, {dimension})" for name, path, dimension in wanted]
    text = "".join(f"{file.indent(statement)}{line}{file.newline}" for line in dict.fromkeys(lines))
    return file.insert_line(file.line(statement), text), *edits


def dynamic_compiles(file: ParsedSource) -> Iterator[tuple[str, Edit]]:
    """The edit that gives ``dynamic=True`` to a `torch.compile` of a file, with its title. Of several only the trial
    shows which one compiles the function. None if there are many. Where one says already whether it is dynamic, only
    ``dynamic=False`` is replaced.
    """
    found = _compile_calls(file)
    options = [each for call in found if isinstance(call, cst.Call) for each in call.args]
    said = [each for each in options if each.keyword and each.keyword.value == "dynamic"]
    if len(found) > _MAX_COMPILES:
        return
    if said:
        title = "compile with `dynamic=True` in place of `dynamic=False`"
        yield from ((title, file.replace(each.value, "True")) for each in said if file.code(each.value) == "False")
        return
    for call in found:
        title = "compile with `dynamic=True`" + (f" in line {file.line(call)}" if len(found) > 1 else "")
        if isinstance(call, cst.Call):
            yield title, _with_argument(file, call, "dynamic=True")
        else:
            yield title, file.replace(call, f"{file.code(call)}(dynamic=True)")


def _compile_calls(file: ParsedSource) -> list[cst.CSTNode]:
    bare = [each.decorator for each in file.nodes(cst.Decorator) if file.code(each.decorator) == "torch.compile"]
    return [*compile_calls(file), *bare]


def _with_argument(file: ParsedSource, call: cst.Call, text: str) -> Edit:
    end = file.range(call.args[-1])[1] if call.args else file.range(call)[1] - 1
    return Edit(file.name, end, end, f", {text}" if call.args else text)
