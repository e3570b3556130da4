"""What else decides what follows from an event, beside the workload itself: to be read only."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.controller.state.context import Context
    from admission.controller.state.policy import WaitForPodsReady
    from admission.kinds.registry import Kinds


@dataclass(frozen=True, slots=True)
class Environment:
    """The same for all workloads."""

    kinds: Kinds
    context: Context
    pods_ready: WaitForPodsReady | None
    chance: Callable[[], float] = random.random
    """From 0 to 1: spreads backoffs."""
