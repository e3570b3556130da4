"""The setting `requestHeader`: an authenticating proxy, named as kube-apiserver's `--requestheader-*` flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from admission.model.base import Model

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]


class RequestHeaderSettings(Model):
    """The proxy in front of the API and the dashboard whose user headers are trusted."""

    client_ca_file: Path
    """PEM file with the CA of the proxy's client certificate. Required."""
    allowed_names: Annotated[tuple[str, ...], Field(min_length=1)]
    """Common names that the proxy's client certificate may have. Required."""
    username_headers: Annotated[tuple[HeaderName, ...], Field(min_length=1)] = ("X-Remote-User",)
    """Headers that may contain the user name; the first one present is used. Default: X-Remote-User."""
    group_headers: tuple[HeaderName, ...] = ("X-Remote-Group",)
    """Headers that contain groups, one group per header. Default: X-Remote-Group."""
