"""What is read of Triton's cache when a program ends."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from dynadiag.capture import generated_code
from dynadiag.torch_private import triton_autotuner


def recorded(folder: Path | None, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, object], dict[str, str]]:
    binary = triton_autotuner.TritonBinary("add", "/tmp/add.py", folder, 8, 0, 16, {"XBLOCK": "64"})
    monkeypatch.setattr(triton_autotuner, "built_kernels", lambda module: iter([binary]))
    [(data, stages)] = generated_code.describe_kernels("module")
    return data, json.loads(stages)


def test_the_stages_are_those_that_the_cache_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "add.json").write_text('{"num_warps": 4}')
    (tmp_path / "__grp__add.json").write_text("{}")
    (tmp_path / "add.ttir").write_text("module {}")
    (tmp_path / "add.cubin").write_bytes(b"\x7fELF\xff")
    data, stages = recorded(tmp_path, monkeypatch)
    assert (data["name"], data["source"], data["warps"]) == ("add", "add.py", 4)
    assert stages == {"ttir": "module {}", "cubin": base64.b64encode(b"\x7fELF\xff").decode()}


def test_a_cache_that_is_gone_has_no_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (None, tmp_path, tmp_path / "missing"):
        data, stages = recorded(folder, monkeypatch)
        assert (data["registers"], data["warps"], stages) == (8, None, {})
