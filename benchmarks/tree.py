"""The size of the product: files, lines, lines a package, and files of fewer than 60 lines.

    python benchmarks/tree.py [--json]

Packages' `__init__.py` are files like any other. Lines are those of the text, blank ones and comments included.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("dynadiag", "minifier", "tui")
SHORT = 60  # lines; a file with fewer may belong to the module that uses it


def lines_of_files() -> dict[Path, int]:
    """The product's modules by their path below the repository, each with its number of lines."""
    files = (file for package in PRODUCT for file in sorted((ROOT / package).rglob("*.py")))
    return {file.relative_to(ROOT): len(file.read_text().splitlines()) for file in files}


def package_of(file: Path) -> str:
    """``dynadiag/trial`` for all below it; a module directly in a package counts for the package."""
    return "/".join(file.parts[:2] if len(file.parts) > 2 and file.parts[0] == PRODUCT[0] else file.parts[:1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    lines = lines_of_files()
    packages: Counter[str] = Counter()
    for file, count in lines.items():
        packages[package_of(file)] += count
    short = [str(file) for file, count in lines.items() if count < SHORT]
    if parser.parse_args().json:
        figures = {"files": len(lines), "lines": sum(lines.values()), "packages": packages, "short": short}
        print(json.dumps(figures, indent=1))
        return
    print(f"{len(lines)} files, {sum(lines.values())} lines, {len(short)} files of fewer than {SHORT} lines")
    print(*(f"{count:6}  {package}" for package, count in packages.most_common()), sep="\n")


if __name__ == "__main__":
    main()
