"""What a bisection says in the end."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dynadiag import __version__
from dynadiag.bisect.report import verdict_text
from dynadiag.render.json import SCHEMA, encode
from dynadiag.render.style import Style
from dynadiag.trial.signature import Signature

__all__ = ["EXIT_CODES", "Culprit", "Verdict"]

EXIT_CODES = {"found": 0, "passes": 3, "fails_uncompiled": 4, "flaky": 5}


@dataclass(frozen=True, slots=True)
class Culprit:
    """One part of the compiler that is at fault. ``nodes`` are the FX nodes where one name stands for several."""

    group: str  # the contract's "class"
    name: str
    compile_id: str | None = None
    graph: str | None = None
    lines: tuple[tuple[str, int], ...] = ()
    nodes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
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
    """The answer. ``confirmed`` are the two trials that make it count, in words; ``side_finds`` other failures met.

    ``printed`` is the end of what the first run printed, where the failure itself has no words.
    ``target`` is what was tried, ``command`` the words of a shell that name it to a command of ours with its arguments
    (none where it is a call of this process, which no command can name); ``accuracy`` whether calls were compared.
    """

    verdict: str  # "found" | "passes" | "fails_uncompiled" | "flaky"
    rungs: dict[str, str]
    rung: str | None = None
    failure: Signature | None = None
    culprits: tuple[Culprit, ...] = ()
    notes: tuple[str, ...] = ()
    side_finds: tuple[str, ...] = ()
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
        return EXIT_CODES[self.verdict]

    def __str__(self) -> str:
        return self.text(Style())

    def text(self, style: Style) -> str:
        """The report, with files named as they are from the current folder."""
        return verdict_text(self, str(Path.cwd()), style)

    def to_json(self) -> str:
        """The contract's document, with what it says beyond under names of its own."""
        return encode(self.document()).decode()

    def document(self) -> dict[str, Any]:
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
            "side_finds": list(self.side_finds),
            "confirmed": list(self.confirmed),
            "printed": list(self.printed),
            "reproduce": list(self.reproduce),
        }


def _installed_torch() -> str | None:
    """torch's version where no trial lived to tell it: a crash, a hang, a result that ended the trial."""
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
