"""torch's registry of graph breaks, read without torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dynadiag.errors import DynadiagError
from dynadiag.explanation.break_case import BreakCase
from dynadiag.explanation.break_families import FAMILIES, family
from dynadiag.explanation.break_remedies import REMEDIES, break_advice
from dynadiag.explanation.registry import Registry
from dynadiag.recording.torch_text.break_types import FAMILY_NAMES, family_name, join_fragments
from tests.explanation.build import a_break, records


@pytest.fixture(scope="module")
def installed() -> Registry:
    return Registry.installed()


def write(folder: Path, raw: object) -> Path:
    path = folder / "registry.json"
    path.write_text(json.dumps(raw))
    return path


def test_explaining_imports_no_torch() -> None:
    code = (
        "import sys, dynadiag.explanation.explanation, dynadiag.render.report\n"
        "from dynadiag.explanation.registry import Registry\n"
        "assert Registry.installed().entries\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_id_is_found_however_it_is_written(installed: Registry) -> None:
    for text in ("GB0124", "gb0124", "GB124", "124", " gb124 "):
        assert installed.lookup(text).gb_id == "GB0124"


def test_every_entry_reads_as_text(installed: Registry) -> None:
    for entry in installed.entries.values():
        assert entry.gb_type
        assert entry.family.meaning
        assert entry.family.remedies
        assert not entry.explanation.startswith('"')
        assert entry.explanation not in ("_explanation", "msg", "explanation", "str(e)")
        assert all(hint == " ".join(hint.split()) for hint in entry.hints)


def test_an_unknown_id_names_near_ones(installed: Registry) -> None:
    with pytest.raises(DynadiagError, match="GB0124"):
        installed.lookup("item()")
    with pytest.raises(DynadiagError, match="GB99999: no graph break of this id"):
        installed.lookup("GB99999")


def test_a_near_id_is_told_as_another(installed: Registry) -> None:
    with pytest.raises(DynadiagError) as refused:
        installed.lookup("GB9999")
    assert str(refused.value).startswith("GB9999: no graph break of this id in the installed torch; ")
    for found in re.findall(r"GB\d+ \(", str(refused.value)):
        assert f"{found}{installed.lookup(found[:-2]).gb_type})" in str(refused.value)


def test_a_damaged_registry_is_an_error_with_a_cure(tmp_path: Path) -> None:
    damaged: list[Any] = [[1], {"GB0001": []}, {"GB0001": [{}]}, {"GB0001": [{"Gb_type": 3}]}]
    for raw in damaged:
        Registry.read.cache_clear()
        with pytest.raises(DynadiagError, match="reinstall torch"):
            Registry.read(write(tmp_path, raw))


def test_the_newest_wording_that_reads_is_taken(tmp_path: Path) -> None:
    newest = {"Gb_type": "_gb_type", "Context": "c", "Explanation": "_explanation", "Hints": []}
    older = {"Gb_type": "Data branching", "Context": "o", "Explanation": "It branches.", "Hints": ["Use ", "cond."]}
    Registry.read.cache_clear()
    entry = Registry.read(write(tmp_path, {"GB0001": [newest, older]})).lookup("GB0001")
    assert (entry.gb_type, entry.explanation, entry.hints) == ("Data branching", "It branches.", ("Use cond.",))


def test_a_wording_of_python_literals_is_read_as_a_sentence(tmp_path: Path) -> None:
    raw = {"Gb_type": "T x", "Context": "", "Explanation": '"One. "    "Two." + info', "Hints": []}
    Registry.read.cache_clear()
    assert Registry.read(write(tmp_path, {"GB0001": [raw]})).lookup("1").explanation == "One. Two."


def test_hints_that_were_cut_are_joined() -> None:
    assert join_fragments(["Use f() to ", "register it.", "Report it."]) == ("Use f() to register it.", "Report it.")
    assert join_fragments(["Don't mutate, or move", "the mutation out."]) == (
        "Don't mutate, or move the mutation out.",
    )
    assert join_fragments([]) == ()


def test_a_break_gets_its_id_and_hints(installed: Registry) -> None:
    bare = a_break(gb_id=None, hints=(), gb_type="Attempted to call function marked as skipped")
    done = installed.complete(bare)
    assert done.gb_id == "GB0007"
    assert done.hints == ()  # torch's registry has none for it


def test_hints_of_the_report_are_kept(installed: Registry) -> None:
    assert installed.complete(a_break(hints=("its own",))).hints == ("its own",)


def test_hints_with_placeholders_are_not_shown_unfilled(installed: Registry) -> None:
    assert installed.complete(a_break(gb_id="GB2861", gb_type="Untraceable C tp_hash", hints=())).hints == ()


def test_a_type_that_torch_does_not_know_still_gets_advice() -> None:
    done = Registry({}).complete(a_break(gb_id=None, gb_type="something new", hints=()))
    assert done.gb_id is None
    assert break_advice(BreakCase(done, records(breaks=(done,))))


@pytest.mark.parametrize(
    ("gb_type", "word"),
    [
        ("Data-dependent branching", "torch.where"),
        ("Data-dependent assertion failed (cannot compile partial graph)", "_assert_async"),
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "capture_scalar_outputs"),
        ("Dynamic shape operator", "capture_dynamic_output_shape_ops"),
        ("Attempted to call function marked as skipped", "custom_op"),
        ("logging.Logger method not supported for non-export cases", "ignore_logging_functions"),
        ("Unsupported context manager", "with"),
        ("Attempted to wrap strided NestedTensor", "jagged"),
        ("Observed exception", "TORCH_COMPILE_DISABLE"),
        ("Call to `torch._dynamo.graph_break()`", "Remove"),
        ("torch.Generator method", "torch.rand"),
    ],
)
def test_the_family_of_a_type(gb_type: str, word: str) -> None:
    assert word in " ".join(REMEDIES[key].text for key in family(gb_type).remedies)


def test_each_family_is_reached(installed: Registry) -> None:
    met = {family_name(entry.gb_type) for entry in installed.entries.values()}
    assert {*FAMILIES} == {*FAMILY_NAMES} <= met


def test_a_second_break_met_while_handling_one_is_not_the_cause(installed: Registry) -> None:
    met = a_break(gb_id="GB0124", gb_type="graph break in loop", explanation="No item().")
    done = installed.complete(met)
    assert done.gb_type == "Unsupported Tensor.item() call with capture_scalar_outputs=False"
    assert done.explanation == "No item(). While handling this, torch met another: graph break in loop."
