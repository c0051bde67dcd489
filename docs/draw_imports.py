"""Draws the packages and who imports whom into `architecture.md`: run by `make docs`, checked by `tests/test_docs.py`.

An arrow points from a package to one that it imports. An import that is also reached through another package has no
arrow of its own (the transitive reduction).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import grimp
import networkx

ROOTS = ("dynadiag", "minifier", "tui")
PAGE = Path(__file__).with_name("architecture.md")
_BLOCK = re.compile(r"(?<=<!-- imports -->\n).*?(?=<!-- end of imports -->)", re.S)


def package_of(module: str, packages: frozenset[str]) -> str:
    """The box that a module belongs to: a package below `dynadiag`, else its root.

    >>> package_of("dynadiag.trial.plan", frozenset({"dynadiag.trial"})), package_of("tui.app", frozenset())
    ('dynadiag.trial', 'tui')
    """
    parts = module.split(".")
    package = ".".join(parts[:2])
    return package if package in packages else parts[0]


def draw() -> str:
    """The picture as a Mermaid flowchart, and the cycles between packages, of which there should be none."""
    imports = grimp.build_graph(*ROOTS, cache_dir=None)
    packages = frozenset(name for name in imports.find_children("dynadiag") if imports.find_children(name))
    graph = networkx.DiGraph()
    for module in imports.modules:
        for imported in imports.find_modules_directly_imported_by(module):
            pair = package_of(module, packages), package_of(imported, packages)
            if pair[0] != pair[1] and "dynadiag" not in pair:
                graph.add_edge(*pair)
    if not networkx.is_directed_acyclic_graph(graph):
        cycles = "; ".join(" -> ".join(cycle) for cycle in networkx.simple_cycles(graph))
        raise ValueError(f"packages import each other in circles: {cycles}")
    reduced = networkx.transitive_reduction(graph)
    arrows = sorted(f"    {one} --> {other}" for one, other in reduced.edges)
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```", ""])


def updated(page: str) -> str:
    """The page with the picture of today."""
    return _BLOCK.sub(lambda _: draw(), page)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
    sys.exit(0)
