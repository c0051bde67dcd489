"""Edits of source files: what is replaced, what stays to the letter, and the diff."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import libcst as cst
import pytest

from dynadiag.fixes.edits import Edit, EditConflict, ParsedSource, SourceMap, apply_edits, unified_diff
from dynadiag.recording.records import Span

TEXT = "import torch\n\n\ndef f(x):\n\ty = g( x )  # a comment\n\treturn y.item() + h(y.item())\n"


def test_the_rest_of_a_file_stays_to_the_letter() -> None:
    file = ParsedSource("a.py", TEXT)
    call = next(node for node in file.nodes(cst.Call) if file.code(node.func) == "g")
    changed = apply_edits({"a.py": TEXT}, [file.replace(call, "k(x)")])
    assert changed == {"a.py": TEXT.replace("g( x )", "k(x)")}


def test_equal_edits_count_once_and_overlapping_ones_conflict() -> None:
    edit = Edit("a.py", 0, 6, "from")
    assert apply_edits({"a.py": TEXT}, [edit, edit])["a.py"].startswith("from torch")
    with pytest.raises(EditConflict, match=r"a\.py"):
        apply_edits({"a.py": TEXT}, [edit, Edit("a.py", 3, 8, "")])


def test_text_around_a_call_and_an_argument_in_it_go_together() -> None:
    text = "f = made(g)\n"
    around, inside = Edit("a.py", 4, 11, "kept(made(g))"), Edit("a.py", 10, 10, ", dynamic=True")
    assert apply_edits({"a.py": text}, [around, inside])["a.py"] == "f = kept(made(g, dynamic=True))\n"
    assert apply_edits({"a.py": text}, [around])["a.py"] == "f = kept(made(g))\n"
    assert SourceMap("a.py", text, [around, inside]).span(Span("a.py", 1, 9)) == Span("a.py", 1, 4)
    with pytest.raises(EditConflict):
        apply_edits({"a.py": text}, [Edit("a.py", 4, 11, "other(g)"), inside])
    with pytest.raises(EditConflict):
        apply_edits({"a.py": text}, [around, Edit("a.py", 4, 11, "more(made(g))")])


def test_a_span_names_the_node_that_stands_exactly_there() -> None:
    file = ParsedSource("a.py", TEXT)
    call = file.at(Span("a.py", 6, 21, 6, 29), cst.Call)
    assert call is not None
    assert file.range(call)[0] == file.offset(6, 21)
    assert file.code(call) == "y.item()"


@pytest.mark.skipif(shutil.which("patch") is None, reason="no `patch` here")
@pytest.mark.parametrize("text", ["a\nb\nc", "a\nb\nc\n", "a\r\nb\r\nc\r\n", "a\n\x0cb\nc\n"])
def test_patch_takes_the_diff(tmp_path: Path, text: str) -> None:
    place = tmp_path / "a.txt"
    place.write_bytes(text.encode())
    changed = text.replace("b", "x")
    diff = unified_diff({"a.txt": text}, {"a.txt": changed})
    subprocess.run(["patch", "-p1", "-s", "--binary"], input=diff.encode(), cwd=tmp_path, check=True)
    assert place.read_bytes() == changed.encode()


def test_configuration_goes_behind_the_last_import() -> None:
    file = ParsedSource("a.py", '"""Doc."""\nimport a\nfrom b import (\n    c,\n)\nx = 1\n')
    assert file.after_imports() == 6


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        ("import torch\n", True),
        ("import numpy as np, torch\n", True),
        ("import torch.nn\n", True),
        ("import torch.nn as nn\n", False),
        ("import torch as th\n", False),
        ("from torch import nn\n", False),
        ("def f():\n    import torch\n", False),
    ],
)
def test_a_file_imports_a_package_where_its_name_is_known(text: str, imported: bool) -> None:
    assert ParsedSource("a.py", text).imports("torch") == imported


def test_places_of_a_changed_file_lead_back() -> None:
    edits = [Edit("a.py", 13, 13, "\nx = 1\n"), Edit("a.py", TEXT.index("g( x )"), TEXT.index("g( x )") + 6, "k(x)")]
    places = SourceMap("a.py", TEXT, edits)
    changed = apply_edits({"a.py": TEXT}, edits)["a.py"].splitlines()
    assert changed[7] == "\treturn y.item() + h(y.item())"
    assert places.span(Span("a.py", 8, 8, 8, 16)) == Span("a.py", 6, 8, 6, 16)
    assert places.span(Span("a.py", 8)) == Span("a.py", 6)
    assert places.span(Span("a.py", 3)) is None  # an edit wrote it


def test_a_name_is_given_once() -> None:
    file = ParsedSource("a.py", TEXT)
    assert [file.free_name("y", "length"), file.free_name("y", "length")] == ["length", "length_"]


def test_a_name_is_given_again_for_what_it_was_given_to() -> None:
    file = ParsedSource("a.py", "x = f(1)\ny = f(2)\n")
    one, other = file.nodes(cst.Call)
    names = [file.free_name("_f", of=call) for call in (one, other, one, other)]
    assert names == ["_f", "_f_", "_f", "_f_"]
