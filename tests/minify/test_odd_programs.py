"""Programs whose text or surroundings are unusual fail as one file as well, or are told in a line what they lack."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynadiag.bisection.bisector import HOOKS
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.minify.source_program import read_program
from dynadiag.minify.source_trials import SourceTrials, source_trials
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits
from tests.interpreters import warm

_VARIABLE = "SIZE_OF_THE_PROGRAM"
_FAILING = "def f(x):\n    torch._dynamo.graph_break()\n    return x\n"
_CALL = 'torch.compile(f, backend="eager", fullgraph=True)(torch.ones(size))\n'
_USUAL = f"import torch\nsize = 2\n{_FAILING}{_CALL}"
_EXTENSION = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fast_sizes"};
PyMODINIT_FUNC PyInit_fast_sizes(void) { return PyModule_Create(&module); }
"""


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceTrials]:
    folder = tmp_path_factory.mktemp("odd")
    target = Program(str(folder / "program.py"))
    Path(target.target).write_text(_USUAL)
    rows = TrialLog(folder / "search.dynadiag", target.text, [target.target])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_VARIABLE, "3")
        with warm(), Runner(target, HOOKS, Limits.default(60)) as runner:
            search = TrialSearch(runner, rows)
            with source_trials(search, _USUAL, ["import torch"], None) as found:
                yield found


def _first_failure(trials: SourceTrials, program: Program) -> Signature | None:
    source = read_program(program)
    trials.whole_text, trials.files, trials.expected = source.text, source.files, None
    trials.notes.clear()
    return trials.first_failure(source.text)


_ODD = {
    "tabs": _USUAL.replace("    ", "\t"),
    "no newline": _USUAL.rstrip("\n"),
    "a byte order mark": "\ufeff" + _USUAL,
    "latin-1": "# -*- coding: latin-1 -*-\nname = 'caf\xe9'\n" + _USUAL,
    "carriage returns": _USUAL.replace("\n", "\r\n"),
    "exec": f"import torch\nsize, space = 2, {{}}\nexec({_FAILING!r}, globals(), space)\nf = space['f']\n{_CALL}",
    "a library in C": f"import numpy\n{_USUAL}",
    "writes a file": f"open('written.txt', 'w').write('1')\n{_USUAL}",
    "reads itself": _USUAL.replace("size = 2", "size = len(open(__file__).readlines()[:2])"),
    "sleeps": f"import time\ntime.sleep(0.4)\n{_USUAL}",
    "environment": f"import os\n{_USUAL}".replace("size = 2", f"size = int(os.environ['{_VARIABLE}'])"),
}


@pytest.mark.parametrize("what", _ODD)
def test_an_odd_program_fails_as_one_file(trials: SourceTrials, what: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_bytes(_ODD[what].encode("latin-1" if what == "latin-1" else "utf-8"))
    failure = _first_failure(trials, Program(str(file)))
    assert failure is not None, trials.notes
    assert "graph_break" in failure.message
    assert list(tmp_path.iterdir()) == [file]  # it writes in a folder of its own


def test_arguments_of_the_program_are_in_the_file(trials: SourceTrials, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"import sys\n{_USUAL}".replace("size = 2", "size = int(sys.argv[1])"))
    assert _first_failure(trials, Program(str(file), ("4",))) is not None
    assert _first_failure(trials, Program(str(file))) is None
    assert "it fails with IndexError" in trials.notes[0]


def test_a_program_that_reads_its_input_is_told_what_it_lacks(trials: SourceTrials, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(_USUAL.replace("size = 2", "size = int(input())"))
    assert _first_failure(trials, Program(str(file))) is None
    assert "EOFError: EOF when reading a line" in trials.notes[0]


def test_a_c_extension_of_the_program_is_told_as_lacking(trials: SourceTrials, tmp_path: Path) -> None:
    (tmp_path / "fast.c").write_text(_EXTENSION)
    library = tmp_path / f"fast_sizes{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = sysconfig.get_path("include")
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", "-o", library, tmp_path / "fast.c"], check=True)
    file = tmp_path / "program.py"
    file.write_text(f"import fast_sizes\n{_USUAL}")
    assert _first_failure(trials, Program(str(file))) is None
    assert "No module named 'fast_sizes'" in trials.notes[0]
