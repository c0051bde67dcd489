"""The Triton kernels that the program built, with their stages: read when it ends, not while it runs.

The stages are files of Triton's own cache; what the kernel takes of the processor is what the driver said of it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dynadiag.recording.names import TRITON_TEXTS
from dynadiag.torch_private import built as torch_private

__all__ = ["describe"]

_MOST = 4 << 20  # bytes of one stage that are kept; the largest met so far is a tenth of it


def describe(module: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Of each kernel of a generated module: what it takes, and its stages as JSON (``cubin`` in base 64)."""
    for binary in torch_private.binaries(module):
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


def _metadata(binary: torch_private.Binary) -> dict[str, Any]:
    text = _read(binary, "json")
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def _stages(binary: torch_private.Binary) -> dict[str, str]:
    found = {
        stage: text.decode(errors="replace") for stage in TRITON_TEXTS if (text := _read(binary, stage)) is not None
    }
    if (code := _read(binary, "cubin")) is not None:
        found["cubin"] = base64.b64encode(code).decode()
    return found


def _read(binary: torch_private.Binary, suffix: str) -> bytes | None:
    """A file of Triton's cache; None where it is not there (any more) or too large."""
    if binary.folder is None:
        return None
    for file in sorted(binary.folder.glob(f"*.{suffix}")):
        if not file.name.startswith("__grp__") and file.stat().st_size <= _MOST:
            return file.read_bytes()
    return None
