"""A call of Python's library that Dynamo does not take, although its result is known when it compiles or is a number.

A function that has one result for each of its arguments (`bisect.bisect`, `json.dumps`) is called while torch compiles:
right because torch guards on the arguments, and calls it again for others. Not for a tensor's value, on which there is
no guard, and not for a list that changes unseen; the proof changes both. `random.random()` becomes
`random.uniform(0, 1)`, which torch takes: the same number, drawn from the same generator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.rewrites.conditions import UNIFORM

__all__ = ["candidates"]

# Their results depend on the arguments alone. No function here reads a clock, a file, the environment or a generator.
_PURE = re.compile(
    r"^(?:bisect\.(?:bisect(?:_left|_right)?)|json\.(?:dumps|loads)|statistics\.\w+|heapq\.(?:nlargest|nsmallest)"
    r"|struct\.(?:pack|unpack|calcsize)|zlib\.(?:crc32|adler32)|base64\.\w+|binascii\.\w+|textwrap\.\w+|string\.capwords"
    r"|fnmatch\.fnmatch(?:case)?|os\.path\.(?:join|basename|dirname|splitext)|colorsys\.\w+|calendar\.\w+"
    r"|difflib\.get_close_matches|unicodedata\.\w+|shlex\.(?:split|quote|join)|ast\.literal_eval|html\.(?:un)?escape)$"
)


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """The call as a constant of the graph, or as one that torch takes."""
    file, call = site.file, site.node
    while file.line(call) == site.problem.span.line:
        function = file.code(call.func)
        known = file.imports(function.partition(".")[0])
        if function == "random.random" and known:
            why = "it is the same number of the same generator"
            yield Candidate(f"draw the number with `{UNIFORM}`", "source", (file.replace(call, UNIFORM),), why)
        if _PURE.match(function) and known and file.imports("torch"):
            name, end, unit = file.free_name(f"_{function.rpartition('.')[2]}", of=call), file.newline, file.indent_unit
            head = f"@torch.compiler.assume_constant_result{end}def {name}(*args, **kwargs):{end}"
            made = f"{head}{unit}return {function}(*args, **kwargs){end}{end}{end}"
            edits = (file.insert_line(file.line_above(call), made), file.replace(call.func, name))
            why = "it has one result for each of its arguments, and torch compiles again for others"
            yield Candidate(f"call `{function}` while torch compiles, by a function of its own", "source", edits, why)
        above = file.enclosing(call, cst.Call)
        if not isinstance(above, cst.Call):
            return
        call = above
