"""Tests of other projects under ``pytest --dynadiag``: the same outcomes, the overhead, and what is new after an edit.

    python benchmarks/plugin_on_projects.py [--only einops] [--backend eager]

Two projects, pinned: einops and einx, whose wheels hold their tests. pip installs them into a temporary folder. Their
tests run unmodified, without and with the plugin, and the outcomes of each test are compared. Then one line of the
test code gets a graph break: exactly that one must be new. Then it becomes known, 30 lines are inserted above it and
the variables around it are renamed: nothing must be new.

--backend overrides the backend of every torch.compile in both runs alike ("eager" needs no C++ compiler and shows the
same breaks). The seconds are those of whole processes, which ran in turn, once each.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

PYTHON = sys.executable


@dataclass(frozen=True, slots=True)
class Project:
    """A project: what pip installs, where its tests are, which are run, and the edits that plant a break.

    ``without_limits`` is applied before the edits, where a test demands one graph and a break would only fail it.
    """

    name: str
    requirements: tuple[str, ...]
    tests: str
    chosen: str
    edited: str
    without_limits: tuple[str, str]
    planted: tuple[str, str]
    renamed: tuple[str, str]
    environment: tuple[tuple[str, str], ...] = ()


PROJECTS = (
    Project(
        name="einops",
        requirements=("einops==0.8.1",),
        tests="einops/tests",
        chosen="test_other.py",
        edited="test_other.py",
        without_limits=("torch.compile(original, fullgraph=True, ", "torch.compile(original, "),
        planted=(
            "            addition = einsum(x_abc",
            "            torch._dynamo.graph_break()\n            addition = einsum(x_abc",
        ),
        renamed=("x_array", "x_parts"),
        environment=(("EINOPS_TEST_BACKENDS", "numpy,torch"),),
    ),
    Project(
        name="einx",
        requirements=("einx==0.4.3", "frozendict==2.4.6"),
        tests="test",
        chosen="test_shapes.py::test_shape_dot[setup_backend16]",
        edited="conftest.py",
        without_limits=("", ""),
        planted=(
            "        return torch.compile(op)\n",
            "        def planted(*args, **kwargs):\n"
            "            torch._dynamo.graph_break()\n"
            "            return op(*args, **kwargs)\n\n"
            "        return torch.compile(planted)\n",
        ),
        renamed=("kwargs", "options"),
    ),
)


@dataclass(frozen=True, slots=True)
class Session:
    """A run of pytest: its exit code, its seconds, what it printed, and the outcome of each test."""

    code: int
    seconds: float
    output: str
    outcomes: dict[str, str]

    @property
    def new(self) -> list[str]:
        """The graph breaks and recompiles that the plugin reports as new."""
        return re.findall(r"^(?:error|warning|note)?:? ?(new-\w+[^\n]*)", self.output, re.MULTILINE)


def install(project: Project, folder: Path) -> Path:
    """Install a project beside its tests. Returns the folder that goes on the path."""
    site = folder / "site"
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", "--no-deps", "--target", site, *project.requirements], check=True)
    return site


def run(project: Project, site: Path, backend: str | None, *options: str) -> Session:
    """Run the chosen tests."""
    tests = site / project.tests
    report = tests / "outcomes.xml"
    environment = {**os.environ, **dict(project.environment), "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    if backend:
        environment["TORCH_COMPILE_OVERRIDE_BACKENDS"] = f">=0:{backend}"
    command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tests)]
    began = time.monotonic()
    done = subprocess.run(
        [*command, f"--junitxml={report}", *options, project.chosen],
        cwd=tests,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    cases = ElementTree.parse(report).getroot().iter("testcase")  # of our own run
    outcomes = {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}
    return Session(done.returncode, seconds, done.stdout + done.stderr, outcomes)


def _outcome(case: ElementTree.Element) -> str:
    return next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")


def edit(file: Path, change: tuple[str, str]) -> None:
    """Replace a text of a file. Fails where it is not there."""
    before, after = change
    text = file.read_text()
    if before not in text:
        raise SystemExit(f"{file}: no {before!r}")
    file.write_text(text.replace(before, after))


def measure(project: Project, folder: Path, backend: str | None) -> bool:
    """Run all steps and print what came of them. Returns whether everything is as it must be."""
    site = install(project, folder)
    plain = run(project, site, backend)
    recorded = run(project, site, backend, "--dynadiag")
    same = plain.outcomes == recorded.outcomes and bool(plain.outcomes)
    print(f"{project.name}: {len(plain.outcomes)} tests, outcomes {'the same' if same else 'DIFFERENT'}")
    print(f"  {plain.seconds:.1f} s without, {recorded.seconds:.1f} s with: x{recorded.seconds / plain.seconds:.2f}")
    print("  " + "\n  ".join(line for line in recorded.output.splitlines() if "graph break" in line.lower())[:2000])

    edited, baseline = site / project.tests / project.edited, folder / "baseline.json"
    if project.without_limits[0]:
        edit(edited, project.without_limits)
    update = ("--dynadiag", f"--dynadiag-baseline={baseline}", "--dynadiag-update")
    hold = update[:2]
    run(project, site, backend, *update)
    edit(edited, project.planted)
    planted = run(project, site, backend, *hold)
    print(f"  a break planted: {len(planted.new)} new, exit code {planted.code}: {planted.new}")
    run(project, site, backend, *update)
    edit(edited, project.renamed)
    edited.write_text("# moved\n" * 30 + edited.read_text())
    moved = run(project, site, backend, *hold)
    print(f"  moved by 30 lines and renamed: {len(moved.new)} new, exit code {moved.code}: {moved.new}")
    return same and len(planted.new) == 1 and planted.code == 1 and not moved.new and moved.code == 0


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[each.name for each in PROJECTS])
    parser.add_argument("--backend", help="override the backend of every torch.compile")
    args = parser.parse_args()
    good = True
    for project in PROJECTS:
        if args.only in (None, project.name):
            with tempfile.TemporaryDirectory(prefix="dynadiag-projects-") as folder:
                good = measure(project, Path(folder), args.backend) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
