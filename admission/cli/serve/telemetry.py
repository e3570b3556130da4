"""OpenTelemetry in `sluice serve`: an optional dependency, imported only if the settings enable it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission.cli.errors import InvalidSettings

if TYPE_CHECKING:
    from admission.cli.configuration.settings import Settings
    from admission.serving.tracing import Tracing


def opened_tracing(settings: Settings) -> Tracing | None:
    """Return the tracing, which the caller closes; None if it is disabled.

    Raises InvalidSettings if the packages of the extra `otel` are not installed.
    """
    if not settings.opentelemetry:
        return None
    try:
        from admission.serving.tracing import Tracing
    except ImportError as error:
        raise InvalidSettings(
            f"opentelemetry is on, but its packages are missing ({error}): pip install 'sluice[otel]'"
        ) from error
    return Tracing()
