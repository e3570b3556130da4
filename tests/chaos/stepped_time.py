"""Puts a clock that can be set in the place of `time.time`, for all that is imported afterwards.

Imported by the server of forks alone, before `sluice`, which has `time.time` as a default of parameters.
"""

from __future__ import annotations

import time

from tests.chaos.stepped import SteppedTime

CLOCK = SteppedTime()
time.time = CLOCK
