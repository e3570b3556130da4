"""Reader of the configuration file of `sluice serve`, with the line number of each field for error messages."""

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
    """A configuration file: `content` maps field names of `Settings` to the values in the file."""

    path: Path | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    _lines: Mapping[str, int] = field(default_factory=dict)
    """Line number of each field by its path, such as `retention.audit` or `resources.transformations[0]`."""

    def place(self, path: str) -> str:
        """Return `FILE:LINE` of the field at `path`, or of its nearest enclosing field that is in the file."""
        while path not in self._lines and path:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return f"{self.path}:{self._lines[path]}" if path else str(self.path)


def read_settings_file(path: Path, names: Collection[str]) -> SettingsFile:
    """Read the file at `path`; `names` are the known field names of `Settings`.

    Raises InvalidSettings if the file cannot be read, is not a single YAML document, or has unknown settings.
    """
    try:
        text = path.read_text()
        documents = parse_documents(text, source=str(path))
    except FileNotFoundError as error:
        raise InvalidSettings(
            f"there is no configuration file {path}; correct the path, or create a file with `sluice config example`"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the configuration file {path} cannot be read: {error}") from error
    except InvalidObject as error:
        raise InvalidSettings(f"the configuration file {error}") from error
    if len(documents) > 1:
        raise InvalidSettings(f"{path} holds {len(documents)} documents; a configuration file has one")
    content = dict(documents[0].body) if documents else {}
    if str(content.get("apiVersion")).startswith("config.kueue.x-k8s.io/"):
        raise InvalidSettings(
            f"{path} is Kueue's configuration; sluice import kueue -f {path} makes one of Sluice of it"
        )
    for key, expected in (("apiVersion", "sluice.dev/v1"), ("kind", "Configuration")):
        if content.pop(key, expected) != expected:
            raise InvalidSettings(f"{key} in {path} must be {expected}")
    spelled = {to_camel(name): name for name in names}
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    read = SettingsFile(path, content, dict(_places(node, "")) if node is not None else {})
    faults = [_unknown_setting(key, read.place(key), spelled) for key in content if key not in spelled]
    if faults:
        raise InvalidSettings("; ".join(faults))
    given = {spelled[key]: value for key, value in content.items() if value is not None}
    return SettingsFile(path, given, read._lines)


def _unknown_setting(key: str, place: str, spelled: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(to_camel(key.replace("-", "_")), spelled, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(spelled)}"
    return f'"{key}" in {place} is not a setting; {hint}'


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
