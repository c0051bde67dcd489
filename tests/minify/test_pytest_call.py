"""A test becomes a program that makes the same call as pytest."""

from __future__ import annotations

import contextlib
import io

import pytest

from dynadiag.minify.pytest_call import with_test_call
from minifier.source import MergeError

TESTS = """
import functools
import unittest
import pytest

@pytest.fixture
def base():
    yield 3

@pytest.fixture(scope="module")
def table(base):
    return [base, base + 1]

@pytest.mark.parametrize("x, y", [(1, 2), pytest.param(3, 4, id="large")])
@pytest.mark.parametrize("z", range(2))
@pytest.mark.slow
def test_many(table, x, y, z):
    print(table, x, y, z)

def test_folder(tmp_path, monkeypatch):
    assert callable(monkeypatch.setattr)
    (tmp_path / "a").write_text("a")
    print(len(list(tmp_path.iterdir())))

class TestGroup:
    def test_inside(self, base):
        print(base)

class TestSetUp:
    def setup_method(self, method):
        self.value = [4]

    @pytest.mark.parametrize("x", [1, 2])
    def test_set(self, x):
        self.value.append(x)
        print(self.value)

class TestOld(unittest.TestCase):
    def setUp(self):
        self.value = 5

    def test_old(self):
        print(self.value)

def test_output(capsys):
    pass

@functools.cache
def once():
    print("once")

def test_decorated():
    once(), once()
"""


@pytest.mark.parametrize(
    ("test", "printed"),
    [
        ("test_many[large]", "".join(f"[3, 4] {x} {y} {z}\n" for x, y in ((1, 2), (3, 4)) for z in range(2))),
        ("test_folder", "1\n"),
        ("test_decorated", "once\n"),
        ("TestGroup::test_inside", "3\n"),
        ("TestOld::test_old", "5\n"),
        ("TestSetUp::test_set", "[4, 1]\n[4, 2]\n"),
    ],
)
def test_a_test_is_called_with_its_fixtures_and_parameters(test: str, printed: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as found:
        exec(compile(with_test_call(TESTS, test), "program.py", "exec"), {})
    assert found.getvalue() == printed


@pytest.mark.parametrize(
    ("test", "told"), [("test_none", "no test test_none"), ("test_output", "capsys"), ("TestGroup", "is a class")]
)
def test_what_cannot_be_called_is_told(test: str, told: str) -> None:
    with pytest.raises(MergeError, match=told):
        with_test_call(TESTS, test)
