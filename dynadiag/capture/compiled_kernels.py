"""The Triton kernels that the program compiled, with their stages. They are read when the program ends.

The stages are files of Triton's own cache. Registers and spills come from the GPU driver.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dynadiag.recording.torch_names import TRITON_TEXT_STAGES
from dynadiag.torch_private import triton_autotuner as torch_private

__all__ = ["describe_kernels"]

_MAX_STAGE_BYTES = 4 << 20  # bytes of one stage that are recorded; the largest seen so far is a tenth of it


def describe_kernels(module: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the data of each kernel of a generated module, and its stages as JSON (``cubin`` in base 64)."""
    for binary in torch_private.built_kernels(module):
        made = _metadata(binary)
        yield (
            {
                "module": module,
                "name": binary.name,
                "source": Path(binary.file).name,
                "registers": binary.registers,
                "spills": binary.spills,
                "shared": binary.shared,
                "warps": made.get("num_warps"),
                "target": made.get("target"),
                "triton": made.get("triton_version"),
                "configuration": binary.configuration,
            },
            json.dumps(_stages(binary)),
        )


def _metadata(binary: torch_private.TritonBinary) -> dict[str, Any]:
    text = _read_cache_file(binary, "json")
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def _stages(binary: torch_private.TritonBinary) -> dict[str, str]:
    found = {
        stage: text.decode(errors="replace")
        for stage in TRITON_TEXT_STAGES
        if (text := _read_cache_file(binary, stage)) is not None
    }
    if (code := _read_cache_file(binary, "cubin")) is not None:
        found["cubin"] = base64.b64encode(code).decode()
    return found


def _read_cache_file(binary: torch_private.TritonBinary, suffix: str) -> bytes | None:
    """A file of Triton's cache, or None if it is missing or too large."""
    if binary.folder is None:
        return None
    for file in sorted(binary.folder.glob(f"*.{suffix}")):
        if not file.name.startswith("__grp__") and file.stat().st_size <= _MAX_STAGE_BYTES:
            return file.read_bytes()
    return None
