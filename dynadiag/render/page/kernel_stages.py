"""The stages of kernels (assembly, IR) that a page shows.

They are those that the recording has, from the recorded run or from an earlier request: reading them executes nothing.
With ``compile_own``, kernels whose code is in this machine's own compiler cache are compiled, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dynadiag.errors import DynadiagError
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.line_table import Stage
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.kernels.stages import STAGES, is_in_own_cache, make_stages
from dynadiag.kernels.triton_artifacts import EVENT_KIND
from dynadiag.recording.reader import Recording

__all__ = ["KernelStages"]


@dataclass(slots=True)
class KernelStages:
    """Finds the stages of kernels. ``missing`` says for which kernels there are none, and why."""

    compile_own: bool = False
    on_progress: Callable[[str], None] = lambda _: None
    missing: list[str] = field(default_factory=list)

    def stage_names(self, recording: Recording) -> dict[tuple[int, str], tuple[str, ...]]:
        """The names of the stages of each kernel, by the event of its module and its name.

        The generated code is read only if some kernel may have stages.
        """
        if not (self.compile_own or recording.has_derived() or recording.counts().get(EVENT_KIND)):
            return {}
        calls = {(call.event, call.name): call for call in kernel_calls(recording) if call.language in STAGES}
        found: dict[tuple[int, str], tuple[str, ...]] = {}
        for number, (key, call) in enumerate(calls.items(), 1):
            if self.compile_own:
                self.on_progress(f"assembly of kernel {number} of {len(calls)}")
            if names := tuple(self.stages_of(recording, call, on_error=self.missing.append)):
                found[key] = names
        return found

    def stages_of(
        self, recording: Recording, call: KernelCall, on_error: Callable[[str], None] = lambda _: None
    ) -> Mapping[str, Stage]:
        """The stages of a kernel by name. ``on_error`` gets the reason if they cannot be made."""
        if call.language not in STAGES:
            return {}
        try:
            compiled = make_stages(recording, call, trusted=self.compile_own and is_in_own_cache(recording, call))
        except DynadiagError as error:
            on_error(str(error))
            return {}
        known = STAGES[call.language][1:]  # without the source; the recording of a stranger may have other names
        return {name: stage for name, stage in compiled.stages.items() if name in known}
