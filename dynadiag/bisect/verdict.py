"""The verdict of a bisection, as data and as a JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dynadiag import __version__
from dynadiag.bisect.verdict_text import verdict_text
from dynadiag.render.json_document import SCHEMA, encode
from dynadiag.render.style import Style
from dynadiag.trial.signature import Signature

__all__ = ["EXIT_CODES", "Culprit", "Verdict"]

EXIT_CODES = {"found": 0, "passes": 3, "fails_uncompiled": 4, "flaky": 5}


@dataclass(frozen=True, slots=True)
class Culprit:
    """One part of the compiler that is at fault. ``nodes`` are its FX nodes, where one name stands for several."""

    group: str  # the contract's "class"
    name: str
    compile_id: str | None = None
    graph: str | None = None
    lines: tuple[tuple[str, int], ...] = ()
    nodes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The culprit as the contract has it."""
        file, line = self.lines[-1] if self.lines else (None, None)
        return {
            "class": self.group,
            "name": self.name,
            "compile_id": self.compile_id,
            "graph": self.graph,
            "file": file,
            "line": line,
            "lines": [{"file": f, "line": n} for f, n in self.lines],
            **({"nodes": list(self.nodes)} if self.nodes else {}),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a bisection.

    ``confirmed`` are the two trials that verify it, in words. ``other_failures`` are different failures that trials
    showed. ``printed`` is the end of the first run's output, for a failure without a message. ``target`` is what was
    tried. ``command`` is the target with its arguments, as shell words for our own commands; empty for a call of this
    process, which no command can name. ``accuracy`` says whether calls were compared. ``reproduce`` are candidates for
    ``bisect --candidate``.
    """

    verdict: str  # "found" | "passes" | "fails_uncompiled" | "flaky"
    rungs: dict[str, str]
    rung: str | None = None
    failure: Signature | None = None
    culprits: tuple[Culprit, ...] = ()
    notes: tuple[str, ...] = ()
    other_failures: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    reproduce: tuple[str, ...] = ()
    torch: str | None = None
    target: str = ""
    command: str = ""
    accuracy: bool = False
    trials: int = 0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_CODES[self.verdict]

    def __str__(self) -> str:
        return self.text(Style())

    def text(self, style: Style) -> str:
        """The report, with files relative to the current folder."""
        return verdict_text(self, str(Path.cwd()), style)

    def to_json(self) -> str:
        """The contract's document as JSON text. It has fields beyond the contract."""
        return encode(self.document()).decode()

    def document(self) -> dict[str, Any]:
        """The contract's document as plain data."""
        return {
            "schema": SCHEMA,
            "dynadiag": __version__,
            "torch": self.torch or _installed_torch(),
            "target": self.target,
            "verdict": self.verdict,
            "rung": self.rung,
            "rungs": self.rungs,
            "failure": _failure(self.failure),
            "culprits": [culprit.to_json() for culprit in self.culprits],
            "trials": self.trials,
            "seconds": round(self.seconds, 2),
            "notes": list(self.notes),
            "side_finds": list(self.other_failures),
            "confirmed": list(self.confirmed),
            "printed": list(self.printed),
            "reproduce": list(self.reproduce),
        }


def _installed_torch() -> str | None:
    """torch's version where no trial reported it: after a crash, a hang, or a result that ended the trial."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def _failure(signature: Signature | None) -> dict[str, Any] | None:
    if signature is None:
        return None
    return {
        "kind": signature.kind,
        "type": signature.type,
        "message": signature.message,
        "where": signature.where,
        "program_line": signature.user,
    }
