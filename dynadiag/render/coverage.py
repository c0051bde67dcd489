"""The section on coverage: how many operator calls ran compiled, and in which functions they did not."""

from __future__ import annotations

from dynadiag.explanation.coverage import Coverage, FunctionCoverage
from dynadiag.explanation.formatting import count
from dynadiag.render.clean import clean_line
from dynadiag.render.components import labelled_lines
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.style import Style
from dynadiag.render.wrap import wrap_indented

__all__ = ["coverage_section"]

_MAX_SHOWN = 10  # functions that a report shows without --all
_INDENT = " " * len("coverage: ")


def coverage_section(coverage: Coverage | None, cwd: str | None, style: Style, all_: bool) -> list[str]:
    """The counts, and a line for each function that called operators uncompiled; nothing where none were counted."""
    if coverage is None:
        return []
    note = labelled_lines("note", "strong", f"--coverage: {coverage.note}", style) if coverage.note else []
    if not coverage.compiled + coverage.uncompiled + coverage.outside:
        return [*note, ""] if note else []
    calls = coverage.compiled + coverage.uncompiled
    share = f", {coverage.compiled / calls:.0%}" if calls else ""
    text = f"{coverage.compiled} of {count(calls, 'operator call')} in compiled calls ran in graphs{share}"
    lines = labelled_lines("coverage", "strong", text, style)
    if coverage.outside:
        text = f"not counted: {coverage.outside} outside of every compiled call"
        lines += wrap_indented(_INDENT, f"{text} (such as backward passes and optimizer steps)", style.columns)
    uncompiled = [each for each in coverage.by_function if each.uncompiled]
    shown = uncompiled if all_ else uncompiled[:_MAX_SHOWN]
    lines += [_function(each, cwd, style) for each in shown]
    if len(shown) < len(uncompiled):
        more = count(len(uncompiled) - len(shown), "more function")
        lines.append(style.paint(f"{_INDENT}... and {more}; --all shows them", "dim"))
    return [*lines, *note, ""]


def _function(each: FunctionCoverage, cwd: str | None, style: Style) -> str:
    lead = f"{_INDENT}{each.uncompiled:>7} uncompiled, {each.compiled} in graphs: "
    at = f"{source_location(each.file, each.line, None, cwd)} in {clean_line(each.function)}"
    return lead + fit_path(at, max(style.columns - len(lead), 16))
