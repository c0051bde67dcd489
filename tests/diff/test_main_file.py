"""The program's own file, also where nothing in it is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynadiag.diff.environment_differences import source_differences
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import open_recording
from tests.capture.runs import Bench

pytestmark = pytest.mark.usefixtures("forked_interpreters")


def test_it_is_recorded_once_and_first_after_the_compiled_file(tmp_path: Path) -> None:
    helper = "import torch\n\n@torch.compile(backend='eager')\ndef f(x):\n    return x + 1\n"
    bench = Bench(tmp_path, "import torch, helper\nhelper.f(torch.ones(2))\n", helper=helper)
    assert bench.recorded().code == 0
    with open_recording(bench.out / "run.dynadiag") as recording:
        files = [
            recording.metadata(event.index)["dynadiag_source"]["file"] for event in recording.events("dynadiag_source")
        ]
    assert [Path(file).name for file in files] == ["helper.py", "program.py"]


def test_the_file_of_a_function_that_is_inlined_is_recorded_too(tmp_path: Path) -> None:
    program = "import torch, helper\ntorch.compile(lambda x: helper.f(x) + 1, backend='eager')(torch.ones(2))\n"
    bench = Bench(tmp_path, program, helper="def f(x):\n    return x + 1\n")
    assert bench.recorded().code == 0
    with open_recording(bench.out / "run.dynadiag") as recording:
        assert {Path(file).name for file in recording.source_files()} == {"helper.py", "program.py"}


@pytest.mark.parametrize(("name", "text", "differs"), [("a.py", "f(1)\n", False), ("b.py", "f(2)\n", True)])
def test_a_change_of_it_is_a_change_of_the_source(name: str, text: str, differs: bool, tmp_path: Path) -> None:
    paths = []
    for number, (file, source) in enumerate((("a.py", "f(1)\n"), (name, text))):
        journal = Journal.create(tmp_path / f"{number}.dynadiag")
        journal.append({"dynadiag_run": {"target": file, "cwd": "/u", "pid": 1 << 22}})
        journal.append({"dynadiag_source": {"file": f"/u/{file}"}}, source)
        journal.close()
        paths.append(journal.path)
    with open_recording(paths[0]) as before, open_recording(paths[1]) as after:
        found = source_differences(before, after, [])
    assert [(each.file, each.line) for each in found] == ([(f"/u/{name}", 1)] if differs else [])


def test_a_module_of_another_folder_is_compared_with_the_one_of_its_name(tmp_path: Path) -> None:
    paths = []
    for folder, value in (("one", 1), ("two", 2)):
        journal = Journal.create(tmp_path / f"{folder}.dynadiag")
        journal.append({"dynadiag_run": {"target": "main.py", "cwd": f"/u/{folder}", "pid": 1 << 22}})
        journal.append({"dynadiag_source": {"file": f"/u/{folder}/main.py"}}, "import helper\n")
        journal.append({"dynadiag_source": {"file": f"/u/{folder}/helper.py"}}, f"scale = {value}\n")
        journal.close()
        paths.append(journal.path)
    with open_recording(paths[0]) as before, open_recording(paths[1]) as after:
        (found,) = source_differences(before, after, [])
    assert (found.file, found.line) == ("/u/two/helper.py", 1)
