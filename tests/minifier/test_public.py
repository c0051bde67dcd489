from __future__ import annotations

import subprocess
import sys

import pytest

import minifier


def test_the_public_names_are_these() -> None:
    assert minifier.__all__ == ["Budget", "Reduction", "ReductionError", "ReductionProgress", "reduce_graph"]
    assert all(getattr(minifier, name).__name__ == name for name in minifier.__all__)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'reduce'"):
        _ = minifier.reduce


def test_importing_the_package_loads_no_torch() -> None:
    code = "import sys, minifier; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
