"""The settings for a proxy in front, named as kube-apiserver's `--requestheader-*` flags are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from admission.model.base import Model

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]


class RequestHeaderSettings(Model):
    """Which proxy in front of the API and the dashboard is believed about its users."""

    client_ca_file: Path
    """PEM file of the authority that has signed the proxy's client certificate."""
    allowed_names: Annotated[tuple[str, ...], Field(min_length=1)]
    """The common names that its certificate may have."""
    username_headers: Annotated[tuple[HeaderName, ...], Field(min_length=1)] = ("X-Remote-User",)
    """The headers with the user name; the first that is there counts."""
    group_headers: tuple[HeaderName, ...] = ("X-Remote-Group",)
    """The headers with the groups, one in each."""
