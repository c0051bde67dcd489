"""Warnings of a compiler are left out of a log, and everything else stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dynadiag.trial.compiler_log import without_warnings
from dynadiag.trial.supervise import read_tail

PROGRAM = """\
template <typename T> T half(T x) { signed char c = 255; return x / c; }
int main() { int unused = 0; return half(3) + missing; }
"""


def test_an_error_of_gcc_is_left_with_its_code_and_no_warning(tmp_path: Path) -> None:
    if (compiler := shutil.which("g++")) is None:
        pytest.skip("no g++ here")
    (tmp_path / "a.cpp").write_text(PROGRAM)
    command = [compiler, "-Wall", "-Woverflow", "-c", "a.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    printed = done.stderr.splitlines()
    assert any("warning:" in line for line in printed)
    kept = without_warnings(["before", *printed, "after"])
    assert (kept[0], kept[-1]) == ("before", "after")
    assert any("error: " in line and "missing" in line for line in kept)
    assert any("int main()" in line for line in kept), "the code of the error"
    assert not any("warning:" in line or "signed char" in line for line in kept)


def test_a_log_without_warnings_stays_as_it_is() -> None:
    log = [
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        "a.h: In instantiation of 'T f(T)':",
        "a.h:3:4:   required from here",
        "a.h:5:6: error: no",
        "    5 |   no;",
        "      |   ^~",
        "UserWarning: warning: a | b",
        "  | a table |",
    ]
    assert without_warnings(log) == log
    assert without_warnings([*log[:4], "a.h:5:6: warning: odd", *log[5:7], *log[7:]]) == [*log[:2], *log[7:]]


def test_the_end_of_an_output_has_the_error_that_a_thousand_warnings_follow(tmp_path: Path) -> None:
    warning = "vec.h:241:7: warning: overflow in conversion\n  241 |       0xff,\n      |       ^~~~\n"
    output = os.open(tmp_path / "output", os.O_RDWR | os.O_CREAT)
    os.write(output, ("Traceback\nk.cpp:3:1: error: no\n" + warning * 1000 + "CppCompileError\n").encode())
    try:
        assert read_tail(output) == "Traceback\nk.cpp:3:1: error: no\nCppCompileError\n"
    finally:
        os.close(output)
