"""The remedies for ranks of one job that are not alike. What describes a divergence chooses them by what differs."""

from __future__ import annotations

from dynadiag.explanation.remedy import Remedy
from dynadiag.job.differences import RankDifference


def _usual(key: str, says: str) -> Remedy[RankDifference]:
    return Remedy(f"ranks.{key}", says, usual=True)


_REMEDIES = (
    _usual(
        "sizes",
        "Give each rank the same sizes (pad to a length that all ranks agree on), or compile for all sizes at once: "
        "`torch._dynamo.mark_dynamic` on the tensor, or `dynamic=True`.",
    ),
    _usual(
        "collectives_agree",
        "`torch._dynamo.config.enable_compiler_collectives = True` makes ranks agree on which sizes are dynamic.",
    ),
    _usual("value", "Make the value the same on each rank, or keep it in a tensor."),
    _usual(
        "code",
        "Run the same code on each rank inside what is compiled: move what only some ranks do out of it, "
        "before or after the call.",
    ),
    _usual(
        "collectives", "Issue the same collectives in the same order on each rank: a rank that has nothing gives zeros."
    ),
    _usual("branch", "Make what the code branches on the same on each rank, or give it to the graph as a tensor."),
    _usual(
        "cache",
        "Give all ranks one cache folder (TORCHINDUCTOR_CACHE_DIR on a shared disk), or fill each host's first, "
        "for instance with `torch.compiler.save_cache_artifacts` and `load_cache_artifacts`.",
    ),
    _usual(
        "compile",
        "Compile it on each rank or on none: compiled code may issue other collectives, and rounds otherwise.",
    ),
)
RANKS = {remedy.key: remedy for remedy in _REMEDIES}
