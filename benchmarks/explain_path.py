"""How many functions of ours, in how many modules, `explain` runs through to report two graph breaks.

    python benchmarks/explain_path.py [--list]

It is the path that a reader follows who asks where a sentence of the report comes from. The program is recorded first;
counted is the command on its recording, with the loading of modules left out.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stdout, suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = tuple(str(ROOT / package) + "/" for package in ("dynadiag", "minifier", "tui"))
PROGRAM = """
import torch

@torch.compile
def step(x):
    x = x * 2
    print("between")
    y = x.sum().item()
    return x + y

step(torch.ones(3))
"""
_NO_FUNCTIONS = ("<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>")


def functions_run(recording: Path) -> set[tuple[str, str]]:
    """The functions of the product that `explain` calls, each as its module and its qualified name."""
    import dynadiag
    from dynadiag.__main__ import main

    for module in pkgutil.walk_packages(dynadiag.__path__, "dynadiag."):  # so that none is loaded while it counts
        if module.name != "dynadiag.__main__":
            with suppress(ImportError):  # it needs an extra
                importlib.import_module(module.name)
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    with redirect_stdout(TextIOWrapper(BytesIO())):
        sys.setprofile(note)
        try:
            main(["explain", str(recording)])
        finally:
            sys.setprofile(None)
    return {
        (code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname)
        for code in seen
        if code.co_filename.startswith(PRODUCT) and code.co_name not in _NO_FUNCTIONS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the functions, module by module")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program, recording = Path(folder, "two_breaks.py"), Path(folder, "two_breaks.dynadiag")
        program.write_text(PROGRAM)
        record = [sys.executable, "-m", "dynadiag", "explain", "-o", str(recording), str(program)]
        subprocess.run(record, check=True, capture_output=True)
        functions = functions_run(recording)
    modules = Counter(module for module, _ in functions)
    print(f"{len(functions)} functions in {len(modules)} modules")
    if given.list:
        print(*(f"{module}: {name}" for module, name in sorted(functions)), sep="\n")


if __name__ == "__main__":
    main()
