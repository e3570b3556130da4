"""Click options of a command, generated from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from admission.cli.configuration.local_file import LocalFile
from admission.cli.configuration.settings import ENVIRONMENT_PREFIX, NESTED, Settings, flag_of, variable_of
from admission.serving.logs import LogFormat, LogLevel
from webhooks.gate_reconciler import Mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.fields import FieldInfo

_CHOICES = {"admission": get_args(Mode), "log_level": get_args(LogLevel), "log_format": get_args(LogFormat)}


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--config` and an option for each setting that has a flag; the command gets them by field name.

    An option that is not given is None, so that environment, file or default can supply the value.
    """
    for name, field in reversed(Settings.model_fields.items()):
        if is_flag(name):
            command = _option(name, field)(command)
    return click.option(
        "--config",
        type=LocalFile(),
        envvar=f"{ENVIRONMENT_PREFIX}CONFIG",
        help=f"YAML file with any of these settings, such as `databaseUrl: ...`.  [env: {ENVIRONMENT_PREFIX}CONFIG]",
    )(command)


def _option(name: str, field: FieldInfo) -> Callable[..., Any]:
    flag = flag_of(name)
    default = "" if field.default is None else f"; default: {_shown(field.default)}"
    text = f"{field.description}  [env: {variable_of(name)}{default}]"
    if field.annotation is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=text)
    if name in _CHOICES:
        return click.option(flag, name, type=click.Choice(_CHOICES[name], case_sensitive=False), help=text)
    return click.option(flag, name, help=text)


def is_flag(name: str) -> bool:
    """Whether a setting has a flag. A secret has none, since other users could read it; objects have none, either."""
    return name != "admin_token" and name not in NESTED


def _shown(default: object) -> str:
    return {True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default)
