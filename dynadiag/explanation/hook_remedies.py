"""The remedies for hooks that some instances have, or that come and go between the calls.

The programs of the trials are in `tests/explanation/advice_programs.py`.
"""

from __future__ import annotations

from dynadiag.explanation.recompile_case import Needs, RecompileCase
from dynadiag.explanation.remedy import Remedy, Slots, slots_if, tried
from dynadiag.recording.torch_text.sources import hooked_module, source_text


def _hooks(*, of_instances: bool) -> Needs:
    def needs(case: RecompileCase) -> Slots:
        module = hooked_module(case.fact.subject)
        fits = case.sort in ("presence", "length", "keys", "value", "type", "identity") and module is not None
        return slots_if(fits and (case.fact.is_new_owner is True) == of_instances, module=source_text(module))

    return needs


HOOKS: tuple[Remedy[RecompileCase], ...] = (
    Remedy(
        "hooks.of_instances",
        "`{module}` has other hooks in one instance than in another, and hooks are part of the code: expect one "
        "compile for each, or give all instances the same hooks.",
        _hooks(of_instances=True),
        trials=tried("hooks_of_some_layers"),
    ),
    Remedy(
        "hooks.between_calls",
        "A hook of `{module}` came or went between the calls, and hooks are part of the code: register hooks before "
        "the first call, and keep them.",
        _hooks(of_instances=False),
        trials=tried("a_hook_that_goes"),
    ),
)
