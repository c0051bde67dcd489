"""A C++ compiler for one run of pytest that compiles the same text once.

Inductor compiles in every new cache folder what it has compiled in the last one: a check of the vector instructions
(five seconds) and the kernels (two seconds each). While `use` lasts, ``CXX`` is ``tests/bin/g++``. It runs the real
one, and keeps what that made by the command and the text: the next who asks gets the same bytes. All workers, and all
processes that have their environment, share what is kept. Its path is always the same, since Inductor names its
precompiled headers by it.

``python kept_compiler.py FOLDER WORDS...`` is ``g++ WORDS...``. A command of another kind than those that Inductor
gives for kernels and headers goes to the compiler as it is. What fails is not kept. Warnings are, and are said again:
kernels that reduce have some of torch's headers.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["use"]

_SEARCHED = ("PATH", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH")
_KINDS = ("-shared", "-E", "c++-header")  # a kernel, the text of a header, a precompiled header
_OTHERS = ("-c", "-S", "-MF", "-MD", "-MMD")


@contextlib.contextmanager
def use() -> Iterator[None]:
    """While this lasts, ``CXX`` is the command, if there is a g++ and nothing else is asked for."""
    if shutil.which("g++") is None or "CXX" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="dynadiag-tests-compiler-", ignore_cleanup_errors=True) as folder:
        os.environ["KEPT_COMPILER"] = f"{sys.executable}:{folder}"
        os.environ["CXX"] = str(Path(__file__).resolve().with_name("bin") / "g++")
        try:
            yield
        finally:
            del os.environ["CXX"], os.environ["KEPT_COMPILER"]


def main(folder: Path, words: list[str]) -> int:
    """Compile, or return the earlier result."""
    output = _output(words)
    if output is None:
        os.execvp("g++", ["g++", *words])
    kept = folder / _key(words, output)
    warnings = kept.with_suffix(".warnings")
    if kept.exists():
        _copy(kept, output)
        sys.stderr.buffer.write(warnings.read_bytes())
        return 0
    done = subprocess.run(["g++", *_linker(words), *words], stderr=subprocess.PIPE, check=False)
    sys.stderr.buffer.write(done.stderr)
    if done.returncode == 0 and output.is_file() and folder.is_dir():
        warnings.write_bytes(done.stderr)
        _copy(output, kept)
    return done.returncode


def _linker(words: list[str]) -> list[str]:
    """The option for the linker gold, where it is installed. The usual linker takes as long as g++ itself."""
    return ["-fuse-ld=gold"] if "-shared" in words and shutil.which("ld.gold") else []


def _output(words: list[str]) -> Path | None:
    """The file that a command of ours makes."""
    if not any(kind in words for kind in _KINDS) or any(other in words for other in _OTHERS):
        return None
    return Path(words[words.index("-o") + 1]) if words.count("-o") == 1 else None


def _key(words: list[str], output: Path) -> str:
    """Of the command and of the texts that it names, wherever they lie."""
    key = hashlib.sha256(repr([os.environ.get(name) for name in _SEARCHED]).encode())
    for word in words:
        file = Path(word)
        if file == output:
            key.update(b"output\0")
        elif not word.startswith("-") and file.is_file():
            key.update(b"text\0" + hashlib.sha256(file.read_bytes()).digest())
        else:
            key.update(b"word\0" + word.encode() + b"\0")
    return key.hexdigest()


def _copy(source: Path, target: Path) -> None:
    """Copy completely or not at all, even if another process writes the same file."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    shutil.copy(source, part)
    part.replace(target)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
