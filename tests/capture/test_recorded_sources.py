"""The files that are recorded: each one that a node's stack names, once, and none where no source is wanted."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

import dynadiag

LIBRARY = "def doubled(x):\n    return x * 2\n"
MAIN = """
import torch
from doubling_library import doubled


@torch.compile(backend="eager", dynamic=False)
def f(x):
    return doubled(x) + 1
"""


@pytest.mark.parametrize("source", [True, False])
def test_a_file_of_a_library_is_recorded_once(source: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "doubling_library.py").write_text(LIBRARY)
    (tmp_path / "doubling_main.py").write_text(MAIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(library))
    main = importlib.import_module("doubling_main")
    torch._dynamo.reset()
    with dynadiag.record(tmp_path / "run.dynadiag", source=source):
        for size in (3, 4):
            main.f(torch.ones(size))
    for name in ("doubling_main", "doubling_library"):
        del sys.modules[name]
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        recorded = Counter(
            Path(recording.metadata(event.index)["dynadiag_source"]["file"]).name
            for event in recording.events("dynadiag_source")
        )
        text = recording.source(str(library / "doubling_library.py"))
    assert recorded["doubling_library.py"] == recorded["doubling_main.py"] == source
    assert text == (LIBRARY if source else None)
