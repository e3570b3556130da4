"""Replace `time.time` by a clock that can be set, for all modules that are imported afterwards.

Imported by the fork server only, before `sluice`, which uses `time.time` as a default of parameters.
"""

from __future__ import annotations

import time

from tests.chaos.stepped import SteppedTime

CLOCK = SteppedTime()
time.time = CLOCK
