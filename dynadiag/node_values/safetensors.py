"""Writes tensors in the format of safetensors: the length of a header, the header as JSON, then the bytes.

Source: the description of the format in the documentation of the safetensors library, version 0.4.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import torch

_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}
_ALIGNMENT = 8  # bytes; the header is filled up with spaces


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a file of tensors by name. One of a type that the format lacks, such as complex64, is left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header, parts, end = {}, [], 0
    for name, tensor in tensors.items():
        if tensor.dtype in _NAMES:
            data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            offsets = [end, end + len(data)]
            header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
            parts.append(data)
            end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
