"""Check for torch, Triton, a C++ compiler, a GPU and Graphviz, and say which command needs each.

This compiles nothing and runs nothing on a GPU.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from dynadiag import __version__
from dynadiag.commands import common, outputs, state
from dynadiag.render.json_document import encode

_TESTED_VERSIONS = ((2, 11), (2, 15))  # the versions of torch that our tests have run on


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that a command may need, and whether it is here."""

    name: str
    found: str | None
    needed_by: str
    cure: str


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)


def run(args: argparse.Namespace) -> int:
    triton = _version("triton") or _version("pytorch-triton") or _version("triton-windows")
    findings = [
        Requirement("Python", sys.version.split()[0], "everything", ""),
        _torch(),
        _recorder_hook(),
        Requirement("Triton", triton, "the triton rung of bisect, kernels on a GPU", "pip install triton"),
        _compiler(),
        _gpu(),
        Requirement("graphviz", _version("graphviz"), "graph", "pip install 'dynadiag[graph]'"),
        Requirement("Graphviz dot", shutil.which("dot"), "graph -o FILE.svg", "apt-get install graphviz"),
        _state_folder(),
    ]
    torch = next(finding.found for finding in findings if finding.name == "torch")
    document = {"schema": 1, "dynadiag": __version__, "torch": torch, "findings": [asdict(one) for one in findings]}
    common.write_result(args.json, encode(document), lambda _: "".join(map(_line, findings)))
    return 0


def _line(finding: Requirement) -> str:
    printer = common.printer_for(sys.stdout)
    if finding.found is not None or not finding.cure:
        found = finding.found or "none"
        return f"{printer.paint('ok     ', 'good')} {finding.name:<14} {found}\n"
    head = f"{printer.paint('missing', 'break')} {finding.name:<14} needed by {finding.needed_by}\n"
    return head + f"{'':<23}{finding.cure}\n"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch() -> Requirement:
    version = _version("torch")
    if version is not None:
        numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
        low, high = _TESTED_VERSIONS
        if not low <= numbers <= high:
            version += f" (tested with {low[0]}.{low[1]} to {high[0]}.{high[1]}: some things may not be seen)"
    return Requirement("torch", version, "every command that runs a program", "pip install torch")


def _compiler() -> Requirement:
    """The compiler that Inductor takes (`torch._inductor.config.cpp.cxx`): it looks for one name alone."""
    asked = os.environ.get("CXX")
    name = asked or ("clang++" if sys.platform == "darwin" else "g++")
    cure = f"CXX names {asked}, which is not here" if asked else f"install {name} (Debian: apt-get install g++)"
    return Requirement("C++ compiler", shutil.which(name), "Inductor on a CPU", cure)


def _recorder_hook() -> Requirement:
    names = [entry.name for entry in importlib.metadata.entry_points(group="torch.backends")]
    found = "installed" if "dynadiag" in names else None
    if found and os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        found = None
    cure = "install dynadiag with pip into this environment, and do not set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    return Requirement("recorder", found, "explain", cure)


def _gpu() -> Requirement:
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*")) if Path("/proc/driver/nvidia/gpus").is_dir() else []
    amd = Path("/dev/kfd").exists()
    found = f"{len(cards)} NVIDIA" if cards else "AMD" if amd else "none: Triton kernels run in its interpreter"
    return Requirement("GPU", found, "nothing", "")


def _state_folder() -> Requirement:
    folder = state.state_folder()
    writable = os.access(next(path for path in (folder, *folder.parents) if path.exists()), os.W_OK)
    return Requirement(
        "recordings", str(folder) if writable else None, "every command without -o", "set XDG_STATE_HOME"
    )
