"""What of a checkpoint is stored where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.langgraph.context import conf_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

INLINE_CHARACTERS = 256
"""A text up to this length rides in the checkpoint's own row; a row of its own would cost more than it saves."""
_INLINE = (type(None), bool, int, float)


def split(values: Mapping[str, Any], versions: ChannelVersions) -> tuple[dict[str, Any], dict[str, str]]:
    """Divide channel values into those that ride in the checkpoint's row and those that have one of their own."""
    inline = {name: value for name, value in values.items() if name not in versions or _is_small(value)}
    return inline, {name: str(versions[name]) for name in values if name not in inline}


def leaning(checkpoint: Checkpoint, metadata: CheckpointMetadata) -> list[str]:
    """Return the delta channels whose value is not stored here: it is made from what earlier checkpoints store."""
    counted: Iterable[str] = metadata.get("counters_since_delta_snapshot") or ()
    versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
    return sorted(name for name in counted if name in versions and name not in values)


def _is_small(value: Any) -> bool:
    kind = type(value)
    return kind in _INLINE or (kind is str and len(value) <= INLINE_CHARACTERS)


def with_run_id(metadata: CheckpointMetadata, config: RunnableConfig) -> dict[str, Any]:
    """Return the metadata to store: what the runtime made, and of the configuration only the run's id."""
    kept: dict[str, Any] = dict(metadata)
    for source in (config.get("metadata") or {}, conf_of(config)):
        if "run_id" not in kept and source.get("run_id") is not None:
            kept["run_id"] = str(source["run_id"])
    return kept
