"""Registry of the schedulers whose quota can be imported, by the name of their `sluice import` command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission.cli.commands.import_quotas import kai, koordinator, mcad, scheduler_plugins, volcano, yunikorn

if TYPE_CHECKING:
    from admission.cli.commands.import_quotas.system import System

SYSTEMS: Final[dict[str, System]] = {
    "kai": kai.SYSTEM,
    "koordinator": koordinator.SYSTEM,
    "mcad": mcad.SYSTEM,
    "scheduler-plugins": scheduler_plugins.SYSTEM,
    "volcano": volcano.SYSTEM,
    "yunikorn": yunikorn.SYSTEM,
}
