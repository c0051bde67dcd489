"""The components of cache keys, as torch prints them: ``[hash] name: value``, one for each part of what is compiled."""

from __future__ import annotations

import re

import orjson

from dynadiag.recording.records import KeyComponent

_COMPONENT = re.compile(r"\[(\w+)\] ((?:\w|\[(?:[^\[\]]|\[\d*\])*\])+): ?(.*)", re.DOTALL)


def parse_components(payload: str) -> tuple[KeyComponent, ...]:
    """Return the components in the payload of an event: JSON with a list of lines. Empty if there are none."""
    try:
        found = orjson.loads(payload)
        lines = found["components"]
    except (ValueError, KeyError, TypeError):
        return ()
    matches = [_COMPONENT.match(line) for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
    return tuple(KeyComponent(match[2], match[1], match[3]) for match in matches if match is not None)


def component_group(name: str) -> str:
    """Return the part of a component's name before its index: ``example_inputs`` of ``example_inputs[0]``."""
    return name.partition("[")[0]


def merge_components(own: tuple[KeyComponent, ...], shared: tuple[KeyComponent, ...]) -> tuple[KeyComponent, ...]:
    """Return ``own`` with those of ``shared`` whose group it does not have."""
    groups = {component_group(component.name) for component in own}
    return own + tuple(component for component in shared if component_group(component.name) not in groups)
