"""The records of a run's compiled calls as a file, by which the processes of a proof compare theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dynadiag.fixes.call_record import CallRecord
from dynadiag.fixes.printed_output import UNSTABLE

__all__ = ["RecordedCalls", "masked_like"]


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """The calls, and a digest of the random number generators when the program has ended."""

    calls: tuple[CallRecord, ...]
    random: str

    @classmethod
    def read(cls, file: str) -> RecordedCalls:
        """What `write` wrote."""
        loaded = torch.load(file, weights_only=True)
        return cls(tuple(CallRecord(**record) for record in loaded["calls"]), loaded["random"])

    def write(self, file: str) -> None:
        """Write the file, at once where it stands: a run may be ended at any time."""
        scratch = Path(f"{file}.part")
        torch.save({"calls": [record.to_json() for record in self.calls], "random": self.random}, scratch)
        scratch.rename(file)

    def of_call(self, call: int) -> list[CallRecord]:
        """The records of one call, with each of the inputs."""
        return [record for record in self.calls if record.call == call]

    def like(self, record: CallRecord) -> CallRecord | None:
        """The record of the same call with the same inputs."""
        return next((each for each in self.calls if (each.call, each.inputs) == (record.call, record.inputs)), None)

    def calls_from(self, count: int) -> Iterable[int]:
        """The calls that a program which makes ``count`` of them does not make."""
        return {record.call for record in self.calls if record.call >= count}


def masked_like(masked: CallRecord, record: CallRecord) -> CallRecord:
    """The record without what differs from run to run by the marks of another one."""
    printed = masked.printed if UNSTABLE in masked.printed else record.printed
    return replace(record, unstable=masked.unstable, printed=printed)
