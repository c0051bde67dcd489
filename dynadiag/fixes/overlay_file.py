"""Writes overlays: the changes of packages' functions as one importable module, or as a patch for the packages."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from dynadiag import __version__, overlay_runtime
from dynadiag.fixes.edits import Edit, apply_edits, unified_diff
from dynadiag.fixes.project import Project, is_library, module_of
from dynadiag.overlay_runtime import Change, functions_in
from dynadiag.recording.package_files import installed_file

_SHOWN = 100  # columns of a header's line
_RUNTIME_HEAD = re.compile(r'\A""".*?"""\n+from __future__ import annotations\n', re.S)


class NotOfFunctions(Exception):  # noqa: N818 - a form of a change, not an error of the program
    """A change of a package's file that is more than changed functions and added statements."""


def library_edits(edits: Collection[Edit]) -> tuple[Edit, ...]:
    """Those of the edits that are of packages' files."""
    return tuple(edit for edit in edits if is_library(edit.file))


@lru_cache(maxsize=1)
def _distributions() -> Mapping[str, Sequence[str]]:
    return importlib.metadata.packages_distributions()


def package_of(project: Project, name: str) -> tuple[str, str]:
    """The package that a library's file belongs to, and its version. Raises `NotOfFunctions` where pip knows none."""
    if (found := installed_file(project.path(name))) is not None:
        return found.package, found.version
    top = module_of(name).partition(".")[0]
    for package in _distributions().get(top, ()):
        return package, importlib.metadata.version(package)
    raise NotOfFunctions(f"no installed package has the module {top}")


def changes_of(project: Project, edits: Collection[Edit]) -> Iterator[Change]:
    """The changes of functions that the edits of packages' files are. Raises `NotOfFunctions` where they are more."""
    own = library_edits(edits)
    sources = {edit.file: project.source(edit.file) for edit in own}
    for name, text in apply_edits(sources, own).items():
        yield from _changes_of_file(project, name, sources[name], text)


def _changes_of_file(project: Project, name: str, before: str, after: str) -> Iterator[Change]:
    package, version = package_of(project, name)
    originals, changed = (_by_place(text) for text in (before, after))
    if not originals.keys() <= changed.keys():
        raise NotOfFunctions("it takes a function away")
    rest = _rest(before, originals), _rest(after, {key: changed[key] for key in originals})
    added = _added(*rest)
    for key, original in originals.items():
        if changed[key] != original:
            digest = hashlib.sha256(original.encode()).hexdigest()
            yield Change(package, version, module_of(name), key[0], digest, changed[key])
    if added:
        yield Change(package, version, module_of(name), "", "", added)


def _by_place(text: str) -> dict[tuple[str, int], str]:
    """The functions by qualified name, and by their number among those of the name."""
    made: dict[tuple[str, int], str] = {}
    for name, _, _, source in sorted(functions_in(text), key=lambda each: each[1]):
        made[name, sum(key[0] == name for key in made)] = source
    return made


def _rest(text: str, functions: Mapping[tuple[str, int], str]) -> list[str]:
    """The statements of a module, each without its functions, as text that is the same for the same statements."""
    for source in functions.values():
        text = text.replace(source, re.match(r"\s*", source)[0] + "pass", 1)  # type: ignore[index]  # it matches
    return [ast.unparse(node) for node in ast.parse(text).body]


def _added(before: list[str], after: list[str]) -> str:
    """The statements of ``after`` that ``before`` does not have. Raises `NotOfFunctions` where others are changed."""
    left, added = list(before), []
    for statement in after:
        if left and left[0] == statement:
            left.pop(0)
        else:
            added.append(statement)
    if left:
        raise NotOfFunctions("it changes more of the module than functions")
    return "\n".join(added)


def overlay_text(changes: Sequence[Change], project: Project, edits: Collection[Edit], notes: Sequence[str]) -> str:
    """An overlay. ``notes`` say of each change what it does, why it is right, and what was proved."""
    packages = sorted({f"{change.package} {change.version}" for change in changes})
    diff = package_diff(project, edits)
    head = [
        f"Changes of functions of {', '.join(packages)}, made and proved by dynadiag {__version__} (`dynadiag fix`).",
        "",
        "Import this module before the package is imported, or run the program with `dynadiag run --overlay FILE.py`,",
        "or with DYNADIAG_OVERLAY=FILE.py in its environment. Where the package or torch has another version, or a",
        "function another text, a warning says so and it is left as it is. No file of the package is touched.",
        "",
        *notes,
        "",
        *diff.splitlines(),
    ]
    docstring = "\n".join(head).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    runtime = _RUNTIME_HEAD.sub("", Path(overlay_runtime.__file__).read_text("utf-8"), count=1)
    entries = "".join(_entry(change) for change in changes)
    start = f'"""{docstring}\n"""\n\nfrom __future__ import annotations\n'
    return (
        f"{start}{runtime}\n\nCHANGES = (\n{entries})\n\ninstall(CHANGES, torch={overlay_runtime.torch_version()!r})\n"
    )


def _entry(change: Change) -> str:
    head = "".join(f"        {value!r},\n" for value in change[:-1])
    return f"    Change(\n{head}        {_literal(change.source)},\n    ),\n"


def _literal(text: str) -> str:
    """A text as a literal in which its lines stand as they are, where that is possible."""
    for quotes in ("'''", '"""'):
        if quotes not in text and "\\" not in text and not text.endswith(quotes[0]):
            return f"{quotes}\n{text}\n{quotes}"
        if quotes not in text and not text.endswith(("\\", quotes[0])):
            return f"r{quotes}\n{text}\n{quotes}"
    return repr(text)


def package_diff(project: Project, edits: Collection[Edit]) -> str:
    """The edits of packages' files as a patch, with paths from the packages on."""
    own = library_edits(edits)
    sources = {edit.file: project.source(edit.file) for edit in own}
    changed = apply_edits(sources, own)

    def inside(texts: Mapping[str, str]) -> dict[str, str]:
        return {name.partition("/")[2]: text for name, text in texts.items()}

    return unified_diff(inside(sources), inside(changed))
