"""An explanation as text for a terminal or a file, in the manner of rustc."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynadiag.explanation.explanation import Explanation
from dynadiag.render.clean import clean_line
from dynadiag.render.cuda_graphs import cuda_graphs_section
from dynadiag.render.findings import findings_section
from dynadiag.render.launches import launches_section
from dynadiag.render.runtime_cost import warm_section
from dynadiag.render.style import Style
from dynadiag.render.summary import summary_section, time_section
from dynadiag.render.wrap import truncate_middle

if TYPE_CHECKING:
    from dynadiag.kernels import KernelCall

__all__ = ["explanation_text"]

_BREAK_ID = re.compile(r"GB\d+")
_LONGEST = 1000  # columns of a target in a command: whole for anything that can be typed


def explanation_text(
    explanation: Explanation,
    style: Style | None = None,
    *,
    all_: bool = False,
    recording: str | None = None,
    calls: Sequence[KernelCall] = (),
) -> str:
    """The report, with a line end. `recording` is the path to name in the command that ends it, `calls` are those of
    the kernels (`dynadiag.kernels.kernel_calls`).

    Nothing in it comes from the recording uncleaned; the escape codes are those of `style` alone.
    """
    style = style or Style()
    lines = [
        *summary_section(explanation, style),
        "",
        *findings_section(explanation, style, all_),
        *time_section(explanation, style),
        *launches_section(explanation, calls, style, all_),
        *cuda_graphs_section(explanation, style, all_),
        *warm_section(explanation, style),
        *_next(explanation, recording, style),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _next(explanation: Explanation, recording: str | None, style: Style) -> list[str]:
    """The command to type next: on the recording where there is one, else on what stopped the graph most."""
    if recording is not None:
        command = f"dynadiag browse {shlex.quote(recording)}"
    elif explanation.findings and _BREAK_ID.fullmatch(explanation.findings[0].id or ""):
        command = f"dynadiag explain {explanation.findings[0].id}"
    else:
        command = f"dynadiag compare {shlex.quote(truncate_middle(clean_line(explanation.run.target), _LONGEST))}"
    return [f"{style.paint('next:', 'help')} {clean_line(command)}"]
