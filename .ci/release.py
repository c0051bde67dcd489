"""Everything that must hold before a release: `make release`. It publishes nothing.

The version, the changelog and the tag of the commit agree. Links of the README and of docs lead somewhere. The packages
are built, and their metadata is accepted. The wheel, without any extra, is installed into a fresh environment, in which
explain, bisect, minify and browse run, and the samples.
"""

from __future__ import annotations

import argparse
import ast
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)(?:#[^)\s]*)?\)")
_UNRELEASED = re.compile(r"^## \[Unreleased\]\n(?P<entries>.*?)^## \[", re.MULTILINE | re.DOTALL)
_RELEASE = re.compile(r"^## \[(?P<version>\d[^\]]*)\] - \d{4}-\d\d-\d\d$", re.MULTILINE)
_LONG_SAMPLES = ("vit_amp.py", "distillation_loss.py", "kfold_regression.py", "distributed_allreduce.py")
_SECONDS = 900  # of one command
_PROGRAM = """\
import torch
import torch._inductor.config

torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"


@torch.compile
def step(x):
    return torch.relu(x.sin() * 2) + 1


step(torch.ones(8))
"""


def main() -> None:
    """Check everything, and end with 1 at the first thing that does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default="2.15.0", help="the release of torch in the fresh environment")
    parser.add_argument("--keep", type=Path, help="make the fresh environment here, and keep it")
    options = parser.parse_args()
    version = version_of_package()
    problems = [*disagreements(version), *broken_links()]
    if problems:
        sys.exit("\n".join(problems))
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", "dist"])
    built = sorted((ROOT / "dist").iterdir())
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, built)])
    wheel = next(path for path in built if path.suffix == ".whl")
    with tempfile.TemporaryDirectory(prefix="dynadiag-release-") as folder:
        try_wheel(wheel, options.torch, (options.keep or Path(folder, "environment")).absolute(), Path(folder), version)
    print(f"{version} can be released: {', '.join(path.name for path in built)}")


def version_of_package() -> str:
    """The version that the package has, read without importing it."""
    tree = ast.parse((ROOT / "dynadiag" / "__init__.py").read_text())
    return next(
        str(ast.literal_eval(node.value))
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    )


def disagreements(version: str) -> Iterator[str]:
    """What does not agree with the version: the changelog, the tag of this commit."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    found = _RELEASE.search(changelog)
    if found is None or found["version"] != version:
        yield f"CHANGELOG.md: its newest release is {found['version'] if found else 'none'}, the package is {version}"
    if (unreleased := _UNRELEASED.search(changelog)) and unreleased["entries"].strip():
        yield f"CHANGELOG.md: what stands under Unreleased would be in {version}, too"
    tags = subprocess.run(
        ["git", "tag", "--points-at", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    if tags and f"v{version}" not in tags:
        yield f"the tag of this commit is {', '.join(tags)}, the package is {version}"


def broken_links() -> Iterator[str]:
    """The links of README and docs to files that are not there."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in _LINK.findall(page.read_text()):
            if not (page.parent / target).exists():
                yield f"{page.relative_to(ROOT)}: no file {target}"


def try_wheel(wheel: Path, torch: str, environment: Path, scratch: Path, version: str) -> None:
    """Install the wheel without an extra, and run what must run there."""
    venv.create(environment, with_pip=True)
    python, dynadiag = environment / "bin/python", str(environment / "bin/dynadiag")
    run([str(python), "-m", "pip", "install", "--quiet", f"torch=={torch}", str(wheel)])
    said = subprocess.run([dynadiag, "--version"], capture_output=True, text=True, cwd=scratch, check=True).stdout
    if said.strip() != f"dynadiag {version}":
        sys.exit(f"the wheel says {said.strip()}")
    (scratch / "fails.py").write_text(_PROGRAM)
    samples = scratch / "samples"
    shutil.copytree(ROOT / "samples", samples)
    run([dynadiag, "explain", "-o", "run.dynadiag", "samples/graph_breaks.py"], cwd=scratch)
    run([dynadiag, "bisect", "fails.py"], cwd=scratch)
    run([dynadiag, "minify", "-o", "repro.py", "fails.py"], cwd=scratch)
    browse([dynadiag, "browse", "run.dynadiag"], scratch)
    for sample in sorted(samples.glob("*.py")):
        if sample.name not in _LONG_SAMPLES:
            run([dynadiag, "explain", f"samples/{sample.name}"], cwd=scratch)


def browse(command: Sequence[str], folder: Path) -> None:
    """Open the browser in a terminal, and close it by its key."""
    print("$", *command, flush=True)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], list(command))
    ends, pressed, code = time.monotonic() + _SECONDS, False, None
    while code is None and time.monotonic() < ends:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        try:
            shown = os.read(terminal, 1 << 16) if ready else b""
        except OSError:  # it has ended
            shown = b""
        if b"graph_breaks" in shown and not pressed:
            os.write(terminal, b"q")
            pressed = True
        ended, status = os.waitpid(pid, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if ended else None
    if code != 0 or not pressed:
        sys.exit(f"browse: exit code {code}, {'after' if pressed else 'without'} showing the recording")


def run(command: Sequence[str], cwd: Path = ROOT) -> None:
    """Run a command, and end with 1 if it fails."""
    print("$", *command, flush=True)
    done = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_SECONDS
    )
    if done.returncode:
        sys.exit(f"{done.stdout[-3000:]}\nexit code {done.returncode}: {' '.join(command)}")


if __name__ == "__main__":
    main()
