"""OpenTelemetry in `sluice serve`: an extra, which is imported only where the settings ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.cli.errors import InvalidSettings

if TYPE_CHECKING:
    from admission.cli.configuration.settings import Settings
    from admission.serving.tracing import Tracing


def opened_tracing(settings: Settings) -> Tracing | None:
    """Where spans go; None: nowhere. To be closed. Raises InvalidSettings if the extra is not installed."""
    if not settings.opentelemetry:
        return None
    try:
        from admission.serving.tracing import Tracing
    except ImportError as error:
        raise InvalidSettings(
            f"opentelemetry is on, but its packages are missing ({error}): pip install 'sluice[otel]'"
        ) from error
    return Tracing()
