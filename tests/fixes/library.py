"""A small installed package, in a folder of its own, for tests of changes of packages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["SCALE", "install_package"]

SCALE = '''"""A block."""
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        """Scales by a number, \\\\ and "a quote"."""
        y = self.linear(x)
        n = y.abs().max().item()
        return torch.relu(y / n)

    def extra(self):
        return 1
'''


def install_package(folder: Path, files: Mapping[str, str], version: str = "1.2", name: str = "site-packages") -> Path:
    """Write the package `fakelib` as pip would install it, with another name as `pip install --target` does. Returns
    the folder for the path.
    """
    place = folder / name
    info = place / f"fakelib-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fakelib\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"fakelib/{file},,\n" for file in files))
    for file, text in files.items():
        path = place / "fakelib" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return place
