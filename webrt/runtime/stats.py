"""What a run did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RunStats:
    """What the last run did. `buffers` and `pipelines` were created while it lasted; `up` and `down` are bytes."""

    dispatches: int = 0
    copies: int = 0
    host_nodes: int = 0
    up: int = 0
    down: int = 0
    buffers: int = 0
    pipelines: int = 0
    submits: int = 0
