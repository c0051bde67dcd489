"""The compiler of tests gives what g++ gives, and compiles the same text once."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif("KEPT_COMPILER" not in os.environ, reason="needs g++, and no CXX of somebody's own")


def _compile(folder: Path, text: str, *words: str, home: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    (folder / "a.cpp").write_text(text)
    python = os.environ["KEPT_COMPILER"].partition(":")[0]
    command = [os.environ["CXX"], "-shared", "-fPIC", *words, str(folder / "a.cpp"), "-o", str(folder / "a.so")]
    environment = {**os.environ, "KEPT_COMPILER": f"{python}:{home}"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _kept(home: Path) -> list[Path]:
    return [path for path in home.iterdir() if path.suffix != ".warnings"]


def _answer(folder: Path) -> int:
    return int(ctypes.CDLL(str(folder / "a.so")).answer())


def test_the_same_text_is_compiled_once_and_another_or_another_command_again(tmp_path: Path) -> None:
    (home := tmp_path / "kept").mkdir()
    text = 'extern "C" int answer() { return ANSWER; }\n'
    for number, (kept, body, flag) in enumerate(
        [(1, text, "-DANSWER=4"), (1, text, "-DANSWER=4"), (2, text, "-DANSWER=5"), (3, f"{text}//\n", "-DANSWER=5")]
    ):
        done = _compile(folder := tmp_path / str(number), body, flag, home=home)
        assert (done.returncode, done.stderr, len(_kept(home))) == (0, "", kept)
        assert _answer(folder) == int(flag[-1])
    assert (tmp_path / "0" / "a.so").read_bytes() == (tmp_path / "1" / "a.so").read_bytes()


def test_what_fails_or_warns_says_so_each_time_and_only_what_fails_is_not_kept(tmp_path: Path) -> None:
    (home := tmp_path / "kept").mkdir()
    for number in range(2):
        wrong = _compile(tmp_path / f"wrong {number}", "int answer() { return no; }\n", home=home)
        warned = _compile(tmp_path / f"warned {number}", "#warning careful\n", home=home)
        assert (wrong.returncode, warned.returncode) == (1, 0)
        assert "was not declared in this scope" in wrong.stderr
        assert "careful" in warned.stderr
    assert len(_kept(home)) == 1


def test_another_kind_of_command_goes_to_the_compiler() -> None:
    words = [os.environ["CXX"], "--version"]
    real = shutil.which("g++")
    assert real is not None
    assert subprocess.check_output(words) == subprocess.check_output([real, "--version"])
