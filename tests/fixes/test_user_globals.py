"""What the globals of the user's modules hold is compared, and restored after each run."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dynadiag.fixes.call_record import CallRecord, StateAfter, scalars_of
from dynadiag.fixes.call_watch import RecordedCalls
from dynadiag.fixes.user_globals import UserGlobals
from dynadiag.trial.reference_run import ReplayableCall

HELPER = """
import torch
SEEN, COUNT, TOTAL = [], 0, torch.zeros(())
class Holder:
    own = None
def note(value):
    global COUNT
    COUNT += 1
    SEEN.append(value)
    TOTAL.add_(1)
def pass_on(value):
    note(value)
"""


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    (tmp_path / "notes_of_a_user.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    import notes_of_a_user  # type: ignore[import-not-found]

    yield notes_of_a_user.note
    del sys.modules["notes_of_a_user"]


def test_what_a_helper_keeps_is_seen_and_restored(note: Callable[[Any], None], tmp_path: Path) -> None:
    call = ReplayableCall(lambda x: note(x), (torch.ones(1),), {})
    held = UserGlobals((str(tmp_path),), call)
    before = held.scalars()
    note(2.5)
    kept = {"COUNT": 1, "len(SEEN)": 1, "SEEN[0]": 2.5}
    assert held.scalars() == {**before, **kept}
    assert held.tensors()["TOTAL"].item() == 1
    held.restore()
    assert held.scalars() == before == {"COUNT": 0, "len(SEEN)": 0}
    assert held.tensors()["TOTAL"].item() == 0


def test_a_module_of_the_users_may_take_the_name_of_another(
    note: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules are asked for their files when others are loaded than the last time: torch alone has thousands."""
    call = ReplayableCall(lambda x: x, (torch.ones(1),), {})
    users = sys.modules.pop("notes_of_a_user")
    monkeypatch.setitem(sys.modules, "notes_of_a_user", sys)
    assert UserGlobals((str(tmp_path),), call).scalars() == {}
    monkeypatch.setitem(sys.modules, "notes_of_a_user", users)
    assert UserGlobals((str(tmp_path),), call).scalars() == {"COUNT": 0, "len(SEEN)": 0}


def test_a_module_of_two_names_is_one(
    note: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that runs in a fresh interpreter is `__main__` and `__mp_main__`."""
    monkeypatch.setitem(sys.modules, "notes_again", sys.modules["notes_of_a_user"])
    call = ReplayableCall(lambda x: note(x), (torch.ones(1),), {})
    assert UserGlobals((str(tmp_path),), call).scalars() == {"COUNT": 0, "len(SEEN)": 0}


def test_what_torch_keeps_of_another_modules_function_is_no_global_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamo keeps a result that it takes for constant among the globals of the function that it compiles."""
    (tmp_path / "asked_of.py").write_text(
        "import torch\n@torch.compiler.assume_constant_result\ndef _is_known():\n    return True\n"
    )
    (tmp_path / "asking.py").write_text("import asked_of\ndef step(x):\n    return x + asked_of._is_known()\n")
    monkeypatch.syspath_prepend(tmp_path)
    asking = importlib.import_module("asking")
    held = UserGlobals((str(tmp_path),), ReplayableCall(lambda x: x, (torch.ones(1),), {}))
    torch.compile(asking.step, backend="eager")(torch.ones(2))
    kept = [name for name in vars(asking) if "is_known" in name]
    del sys.modules["asking"], sys.modules["asked_of"]
    assert kept
    assert held.scalars() == {}


def test_a_global_has_the_name_by_which_the_called_function_knows_it(
    note: Callable[[Any], None], tmp_path: Path
) -> None:
    """A changed program may name it in a function that the called one calls."""
    calls = [ReplayableCall(each, (2.5,), {}) for each in (note, sys.modules[note.__module__].pass_on)]
    first, second = [scalars_of(call) | UserGlobals((str(tmp_path),), call).scalars() for call in calls]
    assert first == second == {"COUNT": 0, "len(SEEN)": 0}
    (tmp_path / "more_notes.py").write_text("COUNT = 3")
    import more_notes  # type: ignore[import-not-found]

    found = UserGlobals((str(tmp_path),), calls[0]).scalars()
    del sys.modules[more_notes.__name__]
    assert found == {"notes_of_a_user.COUNT": 0, "more_notes.COUNT": 3}


def test_a_function_of_the_name_does_not_rename_a_global(note: Callable[[Any], None], tmp_path: Path) -> None:
    """A change may add functions to another module, `_` for an operator: that is no other state."""
    call = ReplayableCall(lambda x: note(x), (2.5,), {})
    (tmp_path / "functions_of_a_user.py").write_text("def COUNT(): ...")
    import functions_of_a_user  # type: ignore[import-not-found]

    found = UserGlobals((str(tmp_path),), call).scalars()
    del sys.modules[functions_of_a_user.__name__]
    assert found == {"COUNT": 0, "len(SEEN)": 0}


def test_a_compiled_model_counts_as_the_model(note: Callable[[Any], None], tmp_path: Path) -> None:
    module = sys.modules[note.__module__]
    call = ReplayableCall(lambda x: x, (torch.ones(1),), {})
    module.MODEL = torch.nn.Linear(1, 1)  # type: ignore[attr-defined]
    before = UserGlobals((str(tmp_path),), call).scalars()
    module.MODEL = torch.compile(module.MODEL)  # type: ignore[attr-defined]
    own = {"MODEL._is_torch_compile": True} if hasattr(module.MODEL, "_is_torch_compile") else {}  # not in torch 2.11
    assert UserGlobals((str(tmp_path),), call).scalars() == {**before, **own}


def test_what_a_class_holds_is_seen_and_restored(note: Callable[[Any], None], tmp_path: Path) -> None:
    holder = sys.modules[note.__module__].Holder
    holder.shared = [1]
    held = UserGlobals((str(tmp_path),), ReplayableCall(lambda x: x, (torch.ones(1),), {}))
    holder.shared.append(2.5)
    assert held.scalars()["Holder.shared[1]"] == 2.5
    held.restore()
    assert holder.shared == [1]


def test_a_lock_that_a_call_left_taken_is_free_again(
    note: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # other tests of this process may have left threads
    module = sys.modules[note.__module__]
    module.LOCK = threading.Lock()  # type: ignore[attr-defined]
    module.HOLDER = module.Holder()  # type: ignore[attr-defined]
    module.HOLDER.own = threading.Lock()
    held = UserGlobals((str(tmp_path),), ReplayableCall(lambda x: x, (torch.ones(1),), {}))
    module.LOCK.acquire()
    module.HOLDER.own.acquire()
    held.restore()
    assert not module.LOCK.locked()
    assert not module.HOLDER.own.locked()


def test_a_global_of_a_class_of_its_own_is_kept_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An enumeration of texts, as libraries have them: the record of a call is read without their classes."""
    enumeration = "class Mode(str, enum.Enum):\n    FAST = 'fast'\n\nMODE = Mode.FAST\n"
    (tmp_path / "modes_of_a_user.py").write_text(f"import enum\n\n{enumeration}")
    monkeypatch.syspath_prepend(tmp_path)
    import modes_of_a_user  # type: ignore[import-not-found]

    call = ReplayableCall(torch.relu, (torch.ones(1),), {})
    after = StateAfter.of(call, UserGlobals((str(tmp_path),), call), torch.ones(1))
    del sys.modules["modes_of_a_user"]
    assert after.scalars["MODE"] == f"<Mode {modes_of_a_user.MODE!r}>"
    file = str(tmp_path / "records")
    RecordedCalls((CallRecord(0, "own", scalars=after.scalars),), "").write(file)
    assert RecordedCalls.read(file).calls[0].scalars == after.scalars


def test_a_module_with_a_relative_file_counts_where_the_file_is(
    note: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a program in a fresh interpreter is relative; `torch.ops` names a file that is nowhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules[note.__module__], "__file__", "notes_of_a_user.py")
    assert not Path(torch.ops.__file__).is_absolute()
    found = UserGlobals((str(tmp_path),), ReplayableCall(note, (1,), {})).scalars()
    assert not any("_dir" in name for name in found)
    assert [name for name in found if name.endswith("COUNT")] == ["COUNT"]
