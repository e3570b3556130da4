"""The configuration file of `sluice serve`: what it says, and in which line."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml
from pydantic.alias_generators import to_camel

from admission.cli.errors import InvalidSettings
from admission.model.errors import InvalidObject
from admission.model.manifests import parse_documents

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """`content` is what a file says, by the setting's name in Python."""

    path: Path | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    _lines: Mapping[str, int] = field(default_factory=dict)
    """Where each field is, by its path in the file, such as `retention.audit` or `resources.transformations[0]`."""

    def place(self, path: str) -> str:
        """`FILE:LINE` of the field at `path`, or of the nearest one around it that is there."""
        while path not in self._lines and path:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return f"{self.path}:{self._lines[path]}" if path else str(self.path)


def read_settings_file(path: Path, names: Collection[str]) -> SettingsFile:
    """The file at `path`, which may hold settings of these names (in Python). Raises InvalidSettings."""
    try:
        text = path.read_text()
        documents = parse_documents(text, source=str(path))
    except FileNotFoundError as error:
        raise InvalidSettings(
            f"there is no configuration file {path}; correct the path, or write a file by `sluice config example`"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the configuration file {path} cannot be read: {error}") from error
    except InvalidObject as error:
        raise InvalidSettings(f"the configuration file {error}") from error
    if len(documents) > 1:
        raise InvalidSettings(f"{path} holds {len(documents)} documents; a configuration is a single one")
    content = dict(documents[0].body) if documents else {}
    for key, expected in (("apiVersion", "sluice.dev/v1"), ("kind", "Configuration")):
        if content.pop(key, expected) != expected:
            raise InvalidSettings(f"{key} in {path} must be {expected}")
    spelled = {to_camel(name): name for name in names}
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    read = SettingsFile(path, content, dict(_places(node, "")) if node is not None else {})
    faults = [_stranger(key, read.place(key), spelled) for key in content if key not in spelled]
    if faults:
        raise InvalidSettings("; ".join(faults))
    given = {spelled[key]: value for key, value in content.items() if value is not None}
    return SettingsFile(path, given, read._lines)


def _stranger(key: str, place: str, spelled: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(to_camel(key.replace("-", "_")), spelled, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(spelled)}"
    return f'"{key}" in {place} is no setting; {hint}'


def _places(node: yaml.Node, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            yield inner, key.start_mark.line + 1
            yield from _places(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield f"{path}[{index}]", item.start_mark.line + 1
            yield from _places(item, f"{path}[{index}]")
