"""A program of several modules becomes one file that does the same."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from minifier.source import MergeError, merge_program


def _write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def _output(text: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, "merged", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def test_modules_with_the_same_names_are_told_apart(tmp_path: Path) -> None:
    _write(
        tmp_path,
        a="import math\nLIMIT = 1\ndef value(x=LIMIT):\n    LIMIT_2 = math.floor(x)\n    return LIMIT_2\n",
        b="import math\nfrom a import value as other\nLIMIT = 20\ndef value():\n    return LIMIT + other()\n",
        main="import a\nimport b as second\nfrom b import value\n"
        "if __name__ == '__main__':\n    print(a.value(), second.value(), value(), a.LIMIT)\n",
    )
    merged = merge_program(tmp_path / "main.py", [tmp_path])
    assert _output(merged) == "1 21 21 1\n"


def test_a_package_with_relative_imports_and_an_import_in_a_function(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("from .tools import scale\nSIZE = 3\n")
    (tmp_path / "pkg" / "tools.py").write_text("def scale(x):\n    from . import late\n    return x * late.FACTOR\n")
    (tmp_path / "pkg" / "late.py").write_text("FACTOR = 2\n")
    (tmp_path / "pkg" / "__main__.py").write_text("from . import SIZE, scale\nprint(scale(SIZE))\n")
    merged = merge_program(tmp_path / "pkg" / "__main__.py", [tmp_path], "pkg")
    assert _output(merged) == "6\n"
    assert "import" not in merged


def test_a_script_that_adds_its_own_folder_finds_its_package(tmp_path: Path) -> None:
    lines = "import sys\nfrom pathlib import Path\nROOT = Path(__file__).resolve().parent\n"
    start = f"{lines}sys.path.insert(0, str(ROOT.parent))\nsys.path.append(print('not run'))\nimport pkg.tools as t\n"
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    _write(
        tmp_path,
        pkg__types="KIND = 4\n",
        pkg__tools="import typing\nif typing.TYPE_CHECKING:\n    from .types import KIND\nSIZE: 'KIND' = 3\n",
        pkg__main=f"{start}print(t.SIZE)\n",
    )
    text = merge_program(tmp_path / "pkg" / "main.py", [tmp_path / "pkg"])
    assert _output(text.replace("__file__", "'.'")).endswith("3\n")
    assert "pkg" not in text


def test_modules_that_are_set_and_passed(tmp_path: Path) -> None:
    _write(
        tmp_path,
        counts="n = 1\ndef more():\n    global n\n    n += 1\n",
        main="import counts\nn = 'own'\ndef twice():\n    counts.n *= 2\n    counts.more()\n"
        "def show(module):\n    return module.n, sorted(vars(module))\ntwice()\nprint(counts.n, n, show(counts))\n",
    )
    text = merge_program(tmp_path / "main.py", [tmp_path])
    assert _output(text) == "3 own (3, ['more', 'n'])\n"


def test_tabs_a_byte_order_mark_and_no_newline_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_bytes("\ufeffif True:\n\tx = 'ä'\n\tprint(x)".encode())
    assert _output(merge_program(tmp_path / "main.py", [tmp_path])) == "ä\n"


def test_what_is_no_python_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, main="import broken\n", broken="def f(:\n")
    with pytest.raises(MergeError, match=r"broken\.py cannot be read as Python"):
        merge_program(tmp_path / "main.py", [tmp_path])


@pytest.mark.parametrize(
    "data",
    [b"def f():\r\n    return 1\r\nf()\r\n", b"# -*- coding: latin-1 -*-\ndef f():\n    return 1  # caf\xe9\nf()"],
    ids=["line ends of Windows", "declared encoding"],
)
def test_source_is_read_in_its_encoding(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "program.py").write_bytes(data)
    assert merge_program(tmp_path / "program.py", [tmp_path]) == "def f():\n    return 1\nf()\n"
