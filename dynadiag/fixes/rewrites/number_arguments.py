"""A number argument that changes from call to call is passed as a tensor. This is right if the function computes with
it: torch guards on the value of a number, and not on that of a tensor. If the function needs the number (a branch, a
range, a shape), the proof sees a graph break or another result. With ``dynamic=True`` a number is a symbol.
"""

from __future__ import annotations

from collections.abc import Iterator

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.call_sites import call_sites
from dynadiag.fixes.rewrites.dynamic_sizes import dynamic_compiles
from dynadiag.recording.torch_text.guards import literal_type
from dynadiag.recording.torch_text.sources import argument_of


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """`torch.tensor` around the argument, where the function is called; the number may be a symbol."""
    name = argument_of(problem.source)
    if problem.kind != "recompile" or name is None or not is_number(problem):
        return
    yield from _tensors(problem, sources, name, "")
    file = sources.file(problem.file)
    for title, edit in dynamic_compiles(file) if file is not None else ():
        yield Candidate(title, "argument", (edit,), "torch compiles with a symbol for the number, and no value changes")
    if not is_float(problem):
        return
    # float64 is exact, but makes two graphs: torch gives such an argument a symbol for its value, finds in the first
    # graph that nothing computes with it, and traces again without (`TensorifyScalarRestartAnalysis`).
    yield from _tensors(problem, sources, name, ", dtype=torch.float64")


def _tensors(problem: FixProblem, sources: Sources, name: str, dtype: str) -> Iterator[Candidate]:
    nested = (problem.source or "").count("[") > 1
    for site in call_sites(problem, sources, [] if nested else [name]):
        named = {each.keyword.value: each for each in site.call.args if each.keyword is not None}
        given = named.get(name) or site.arguments.get(name)
        if given is not None:
            value = given.value
            yield Candidate(
                f"give `{name}` as a tensor",
                "argument",
                (site.file.replace(value, f"torch.tensor({site.file.code(value)}{dtype})"),),
                "torch guards on the value of a number, and not on that of a tensor",
                for_whole_graphs=True,
            )


def is_number(problem: FixProblem) -> bool:
    """Whether the value that changed is a number, before and after."""
    values = (*problem.was, problem.now or "")
    return all(literal_type(value) in ("int", "float") for value in values)


def is_float(problem: FixProblem) -> bool:
    """Whether one of the values was written as a float."""
    return any(literal_type(value) != "int" for value in (*problem.was, problem.now or ""))
