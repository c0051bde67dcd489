"""Do the tests notice a fault? Small faults in product code, each tried with the tests of its own package.

    python benchmarks/mutants.py [--count N] [--seed S] [--tree FOLDER] [--log FILE] [--jobs N] [--list]
                                 [--select quick|rest]

A mutant is one change of one expression or branch in a function: a comparison flipped, `and` and `or` swapped, a number
off by one, a condition negated, a return value replaced by None, a string emptied, a branch removed. Mutants are spread
evenly over the packages; the same seed and the same tree give the same mutants. Each is tried in a copy of the tree,
with the environment FOLDER/.venv, in a pytest that stops at the first failure. A test that fails without the change too
is left out, and the others are tried again. With --jobs several mutants are tried at
once, each in a copy of its own. With --select quick only the tests of `make test` are run, with --select rest only
those that it leaves out: what the former kill, as a log without the lines of survivors says, is not tried again.
One line for each mutant, and the total at the end.

mutmut and cosmic-ray have one test command for all mutants; here each package has tests of its own, and the mutants are
a sample.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
STRING_METHODS = {
    "startswith",
    "endswith",
    "split",
    "rsplit",
    "partition",
    "rpartition",
    "replace",
    "find",
    "get",
    "pop",
}
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "*.dynadiag")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the bytes from ``begin`` to ``end`` of ``file`` become ``new``."""

    package: str
    file: str
    line: int
    kind: str
    begin: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        old, new = (textwrap.shorten(text, 70, placeholder=" ...") for text in (self.old, self.new))
        return f"{self.file}:{self.line}: {self.kind}: {old} becomes {new}"


def packages(tree: Path) -> dict[str, Path]:
    """The packages that have tests of their own, by name: the subpackages of dynadiag, and the two beside it."""
    found = {file.parent.name: file.parent for file in sorted(tree.glob("dynadiag/*/__init__.py"))}
    return found | {name: tree / name for name in ("minifier", "tui") if (tree / name).is_dir()}


def tests_of(tree: Path, mutant: Mutant) -> list[str]:
    """The test files of the mutant's package, those named after its module first."""
    folder, stem = tree / "tests" / mutant.package, Path(mutant.file).stem
    files = sorted([*folder.rglob("test_*.py"), *(tree / "tests").glob(f"test_{mutant.package}*.py")])
    files.sort(key=lambda file: stem not in file.stem)
    return [str(file.relative_to(tree)) for file in files]


def mutants(tree: Path, package: str, folder: Path) -> list[Mutant]:
    """Every mutant of a package."""
    found = []
    for file in sorted(folder.rglob("*.py")):
        source = file.read_bytes()
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for kind, first, last, new in changes(ast.parse(source)):
            begin = starts[first.lineno - 1] + first.col_offset
            end = starts[cast("int", last.end_lineno) - 1] + cast("int", last.end_col_offset)
            old, name = source[begin:end].decode(), str(file.relative_to(tree))
            found.append(Mutant(package, name, first.lineno, kind, begin, end, old, new))
    return found


Positioned = ast.expr | ast.stmt
Change = tuple[str, Positioned, Positioned, str]


def changes(module: ast.Module) -> Iterator[Change]:
    """The changes of a module: kind, first and last node that are replaced, and what takes their place."""
    for node in executed(module, inside=False):
        match node:
            case ast.Compare(ops=[operator]):
                node.ops = [FLIPPED[type(operator)]()]
                yield "comparison", node, node, f"({ast.unparse(node)})"
                node.ops = [operator]
                yield from (("string", side, side, '""') for side in (node.left, *node.comparators) if is_word(side))
            case ast.BoolOp(op=operator):
                node.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
                yield "and/or", node, node, f"({ast.unparse(node)})"
                node.op = operator
            case ast.Constant(value=int(number)) if not isinstance(number, bool):
                yield "number", node, node, str(number + 1)
            case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
                yield "return", value, value, "None"
            case ast.Subscript(slice=key) if is_word(key):
                yield "string", key, key, '""'
            case ast.Call(func=ast.Attribute(attr=method), args=[argument, *_]) if method in STRING_METHODS:
                yield from [("string", argument, argument, '""')] if is_word(argument) else []
        if isinstance(node, ast.If | ast.IfExp):
            yield "condition", node.test, node.test, f"(not ({ast.unparse(node.test)}))"
        if isinstance(node, ast.If):
            yield "branch", node.body[0], node.body[-1], "pass"


def executed(node: ast.AST, inside: bool) -> Iterator[ast.AST]:
    """What runs when a function is called: no annotation, default, docstring, message of an error, or f-string."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        children: list[ast.AST] = list(node.body)
        inside = True
    else:
        annotation = getattr(node, "annotation", None)
        children = [child for child in ast.iter_child_nodes(node) if child is not annotation]
    for child in children:
        docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if docstring or isinstance(child, ast.Raise | ast.Assert | ast.JoinedStr):
            continue
        if inside:
            yield child
        yield from executed(child, inside)


def is_word(node: ast.expr) -> bool:
    """A string that names something: one that is read by a program, not by a person."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "" and " " not in node.value


def chosen(tree: Path, count: int, seed: int) -> list[Mutant]:
    """``count`` mutants: as many of each package, each of another kind and file where the package has them."""
    every = {name: mutants(tree, name, folder) for name, folder in packages(tree).items()}
    largest = sorted((name for name in every if every[name]), key=lambda name: -len(every[name]))
    picked = []
    for place, name in enumerate(largest):
        share = count // len(largest) + (place < count % len(largest))
        picked += spread(every[name], share, random.Random(f"{seed} {name}"))
    return sorted(picked, key=lambda mutant: (mutant.package, mutant.file, mutant.begin))


def spread(every: list[Mutant], share: int, chance: random.Random) -> list[Mutant]:
    kinds = defaultdict(list)
    for mutant in every:
        kinds[mutant.kind].append(mutant)
    order = chance.sample(sorted(kinds), len(kinds))
    picked: list[Mutant] = []
    for place in range(min(share, len(every))):
        left = [mutant for mutant in kinds[order[place % len(order)]] if mutant not in picked]
        left = left or [mutant for mutant in every if mutant not in picked]
        files = {mutant.file for mutant in picked}
        picked.append(chance.choice([mutant for mutant in left if mutant.file not in files] or left))
    return picked


class Copy:
    """A copy of the tree, with its environment, that the tests run in."""

    def __init__(self, tree: Path, scratch: Path, limit: float, select: str) -> None:
        self.select = select
        self.tree, self.root, self.scratch, self.limit = tree, scratch / "tree", scratch, limit
        self.running: subprocess.Popen[bytes] | None = None
        shutil.copytree(tree, self.root, symlinks=True, ignore=NOT_COPIED)
        shutil.copytree(tree / ".venv", self.root / ".venv", symlinks=True, copy_function=link)
        inside = self.root / ".venv"
        for file in [*inside.glob("bin/*"), *inside.glob("pyvenv.cfg"), *inside.glob("lib/*/site-packages/*.pth")]:
            if file.is_file() and not file.is_symlink() and str(tree).encode() in (text := file.read_bytes()):
                mode = file.stat().st_mode
                file.unlink()  # it shares its content with the tree's own
                file.write_bytes(text.replace(str(tree).encode(), str(self.root).encode()))
                file.chmod(mode)

    def change(self, mutant: Mutant, number: int) -> None:
        file = self.root / mutant.file
        source = file.read_bytes()
        file.write_bytes(source[: mutant.begin] + mutant.new.encode() + source[mutant.end :])
        ast.parse(file.read_bytes())
        os.utime(file, (number, number))  # Python's caches know a file by its size and its time in whole seconds

    def restore(self, mutant: Mutant) -> None:
        shutil.copy2(self.tree / mutant.file, self.root / mutant.file)

    def pytest(self, *words: str, deadline: float) -> tuple[int | None, list[str]]:
        """The exit code (None: out of time) and what failed."""
        cache, temporary = self.scratch / "cache", self.scratch / "tmp"
        for folder in (cache, temporary):
            shutil.rmtree(folder, ignore_errors=True)
        temporary.mkdir()
        command = [
            str(self.root / ".venv/bin/python"),
            "-m",
            "pytest",
            "-q",
            "-x",
            "-n",
            "0",
            "-o",
            f"cache_dir={cache}",
        ]
        with (self.scratch / "output.txt").open("wb") as output:
            self.running = process = subprocess.Popen(
                [*command, *words], cwd=self.root, env=os.environ | {"TMPDIR": str(temporary)}, stdout=output,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            code = ended(process, max(1, deadline - time.monotonic()))
        failed = cache / "v/cache/lastfailed"
        return code, list(json.loads(failed.read_bytes())) if failed.exists() else []

    def stop(self) -> None:
        """End what runs in it now."""
        if self.running is not None and self.running.poll() is None:
            os.killpg(self.running.pid, signal.SIGKILL)

    def outcome(self, mutant: Mutant, number: int) -> str:
        """Killed by which test, survived, or timed out."""
        deadline, tests, known = time.monotonic() + self.limit, tests_of(self.tree, mutant), list[str]()
        while tests:
            self.change(mutant, number)
            code, failed = self.pytest(
                f"--select={self.select}", *tests, *(f"--deselect={name}" for name in known), deadline=deadline
            )
            self.restore(mutant)
            if code is None:
                return "timed out"
            if code in (0, 5):
                break
            if not failed:
                return f"killed by the collection of {mutant.package}'s tests"
            if self.pytest(failed[0], deadline=time.monotonic() + self.limit)[0] == 0:
                return f"killed by {failed[0]}"
            known.append(failed[0])
        left_out = f" (without {', '.join(known)}: failed unchanged too)" if known else ""
        return f"survived{left_out}" if tests else f"survived: {mutant.package} has no tests of its own"


def link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Its exit code; None where it is out of time. pytest then has half a minute to end what its tests started."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=24, help="how many mutants (default 24)")
    parser.add_argument("--seed", type=int, default=0, help="which mutants (default 0)")
    parser.add_argument(
        "--tree", type=Path, default=Path(__file__).parent.parent, help="another checkout, with its .venv"
    )
    parser.add_argument("--limit", type=float, default=1800, help="seconds for each mutant (default 1800)")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tried at once (default 1)")
    parser.add_argument("--log", type=Path, help="also write to this file; what it has already is not tried again")
    parser.add_argument("--select", choices=["quick", "rest", "all"], default="all", help="which tests (default all)")
    parser.add_argument("--list", action="store_true", help="name the mutants and try none")
    options = parser.parse_args()
    tree = options.tree.resolve()
    picked = chosen(tree, options.count, options.seed)
    if options.list:
        print(*picked, sep="\n")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # the copy goes, and its tests end
    known = options.log.read_text().splitlines() if options.log and options.log.exists() else []
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as scratch:
        copies = [Copy(tree, Path(scratch) / str(job), options.limit, options.select) for job in range(options.jobs)]
        first = copies[0]
        if first.pytest("--collect-only", "tests", deadline=time.monotonic() + options.limit)[0] != 0:
            sys.exit(f"the tests of {tree} cannot be collected:\n{(first.scratch / 'output.txt').read_text()[-2000:]}")
        free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in copies:
            free.put(copy)

        def outcome(number: int, mutant: Mutant) -> str:
            line = next((line for line in known if line.startswith(f"{mutant}: ")), None)
            if line is None:
                copy = free.get()
                line = f"{mutant}: {copy.outcome(mutant, number)}"
                free.put(copy)
                tell(line, options.log)
            return line.removeprefix(f"{mutant}: ").split()[0]

        with ThreadPoolExecutor(options.jobs) as pool:
            try:
                counts = Counter(pool.map(outcome, range(1, len(picked) + 1), picked))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for copy in copies:
                    copy.stop()
                raise
    told = ", ".join(f"{counts[word]} {text}" for word, text in WORDS.items())
    tell(f"{len(picked)} mutants, seed {options.seed}: {told}", options.log)


WORDS = {"killed": "killed", "survived": "survived", "timed": "timed out"}


def tell(line: str, log: Path | None) -> None:
    print(line, flush=True)
    if log:
        with log.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
