"""A range of releases of torch, as the user writes it: ``2.11.0..2.15.0``."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from dynadiag.errors import DynadiagError

_COMPLETE = 3  # numbers of a release: 2.15 means each 2.15.*, 2.15.0 means that one


@dataclass(frozen=True, slots=True)
class VersionRange:
    """From ``first`` to ``last``, both included. ``None`` is no bound.

    A bound with fewer than three numbers means all releases that begin with it.
    """

    first: Version | None
    last: Version | None

    def __contains__(self, version: Version) -> bool:
        if version.is_prerelease and not self.prereleases:
            return False
        after = self.first is None or version >= self.first
        return after and (self.last is None or version <= self.last or _begins_with(version, self.last))

    @property
    def prereleases(self) -> bool:
        """Whether a bound is a nightly or a candidate: then others of them count too."""
        return any(bound is not None and bound.is_prerelease for bound in (self.first, self.last))


def parse_range(text: str) -> VersionRange:
    """The range that a text means. Raises `DynadiagError` if it is none, or if it ends before it begins."""
    first, dots, last = text.partition("..")
    if not dots:
        raise DynadiagError(f"--torch {text[:100]}: not a range; write it as 2.11.0..2.15.0")
    found = VersionRange(_bound(first, text), _bound(last, text))
    if found.first is not None and found.last is not None and found.first > found.last:
        raise DynadiagError(f"--torch {text[:100]}: the range ends before it begins; write it as {last}..{first}")
    return found


def public(version: str) -> Version:
    """A version without its build (``2.13.0+cpu`` is release 2.13.0). Raises `InvalidVersion`."""
    return Version(Version(version).public)


def _bound(text: str, whole: str) -> Version | None:
    try:
        return Version(text) if text.strip() else None
    except InvalidVersion:
        raise DynadiagError(
            f"--torch {whole[:100]}: {text[:50]} is no version; write a range as 2.11.0..2.15.0"
        ) from None


def _begins_with(version: Version, bound: Version) -> bool:
    numbers = bound.release
    return len(numbers) < _COMPLETE and version.release[: len(numbers)] == numbers
