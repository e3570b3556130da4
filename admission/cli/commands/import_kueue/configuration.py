"""Translation of Kueue's own configuration (`config.kueue.x-k8s.io`) to one of Sluice, and an account of its fields."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import ValidationError

from admission.cli.arguments.foreign import KUEUE_SETTINGS_KEY, api_group
from admission.cli.commands.import_kueue.configuration_fields import (
    FIELDS,
    TOPOLOGY_GATES,
    VERSIONS,
    Fate,
    fate_of_gate,
)
from admission.cli.configuration.integrations import IntegrationsSettings
from admission.cli.configuration.policy_settings import (
    AdmissionFairSharingSettings,
    FairSharingSettings,
    ResourcesSettings,
    WaitForPodsReadySettings,
)
from admission.cli.errors import Unreadable
from admission.kinds import BATCH_JOB, GROUPED, JOB_SET, LABELLED, TRAIN_JOB, frameworks_known
from admission.model.base import LabelSelector
from admission.model.durations import parse_duration
from admission.model.errors import InvalidObject
from admission.model.manifests import API_VERSION, faults
from admission.model.reading import parse_documents
from admission.model.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission.model.base import Model
    from admission.model.manifests import Document

_VERSIONS: Final = ("v1beta2", "v1beta1")
_SECTIONS: Final[Mapping[str, type[Model]]] = {
    "managedJobsNamespaceSelector": LabelSelector,
    "waitForPodsReady": WaitForPodsReadySettings,
    "fairSharing": FairSharingSettings,
    "admissionFairSharing": AdmissionFairSharingSettings,
    "resources": ResourcesSettings,
    "integrations": IntegrationsSettings,
}
"""Fields whose content has Kueue's structure in Sluice, too -> the model that validates it."""
_DEFAULTS_OF_V1BETA1: Final = {"timeout": "5m", "blockAdmission": True}
"""Defaults of an enabled `waitForPodsReady` of v1beta1 that are others in v1beta2 and in Sluice."""

_EXTERNAL: Final = "integrations.externalFrameworks"


@dataclass(slots=True)
class TranslatedSettings:
    """A configuration of Sluice, and what became of each field of Kueue's."""

    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    account: list[tuple[str, Fate]] = field(default_factory=list)
    """Path of a field, and its fate."""

    def lines(self) -> list[str]:
        """Return the account, one line for each field."""
        width = max((len(path) for path, _ in self.account), default=0)
        rows = [f"{path:{width}}  {fate.outcome}" for path, fate in self.account]
        return [f"{self.source}: what became of Kueue's settings", *rows]

    def text(self) -> str:
        """Return the configuration file, with the account as comments."""
        head = "".join(f"# {line}\n" for line in self.lines())
        body = {"apiVersion": API_VERSION, "kind": "Configuration", **self.settings}
        return f"{head}{yaml.safe_dump(body, sort_keys=False)}"


def translate(document: Document) -> TranslatedSettings:
    """Translate Kueue's configuration, which may be in a ConfigMap.

    Raises Unreadable for an unknown version, and for invalid values, with the path of each.
    """
    source, body = _configuration(document)
    version = str(body.get("apiVersion")).rpartition("/")[2]
    if api_group(body) != "config.kueue.x-k8s.io" or version not in _VERSIONS or body.get("kind") != "Configuration":
        given = f"{clean(str(body.get('apiVersion')))} {clean(str(body.get('kind')))}"
        known = " and ".join(f"config.kueue.x-k8s.io/{each}" for each in _VERSIONS)
        raise Unreadable(f"{source}: is {given}; the Configuration of {known} can be imported")
    translation = TranslatedSettings(source)
    content = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    try:
        _SettingsReader(translation, version).read(content)
    except InvalidObject as error:
        raise Unreadable(str(error)) from error
    return translation


def _configuration(document: Document) -> tuple[str, Mapping[str, Any]]:
    """Return source and content of the configuration. Raises Unreadable if the ConfigMap does not contain one."""
    if document.body.get("kind") != "ConfigMap":
        return document.source, document.body
    source = f"{document.source}: data[{KUEUE_SETTINGS_KEY}]"
    text = document.body["data"][KUEUE_SETTINGS_KEY]
    try:
        found = parse_documents(text if isinstance(text, str) else "", source=source)
    except InvalidObject as error:
        raise Unreadable(str(error)) from error
    if len(found) != 1:
        raise Unreadable(f"{source}: must be one YAML document, the Configuration of Kueue")
    return source, found[0].body


class _SettingsReader:
    """Reader of one configuration: sorts its fields into what Sluice has, and what it does not have."""

    def __init__(self, translation: TranslatedSettings, version: str) -> None:
        self._translation = translation
        self._version = version
        self._causes: list[tuple[str, str]] = []

    def read(self, content: Mapping[str, Any]) -> None:
        """Translate the fields. Raises InvalidObject with the path of each invalid value."""
        settings = self._translation.settings
        self._walk(content, "", settings)
        self._adapt(settings)
        for name, model in _SECTIONS.items():
            if name in settings:
                self._validate(settings[name], name, model)
        if self._causes:
            raise InvalidObject(self._causes, subject=self._translation.source)

    def _walk(self, values: Mapping[str, Any], prefix: str, into: dict[str, Any]) -> None:
        for key, value in values.items():
            path = f"{prefix}{key}"
            if value is None:
                continue
            if self._version not in VERSIONS.get(path, (self._version,)):
                (known,) = VERSIONS[path]
                self._tell(path, Fate.of_another_version(self._version, known))
            elif key == "featureGates" and not prefix:
                self._feature_gates(value)
            elif (fate := FIELDS.get(path)) is None and any(known.startswith(f"{path}.") for known in FIELDS):
                if isinstance(value, Mapping):
                    inner: dict[str, Any] = {}
                    self._walk(value, f"{path}.", inner)
                    if inner or (path in _SECTIONS and not value):
                        into[key] = inner
                else:
                    self._causes.append((path, "must be an object"))
            elif fate is None:
                self._tell(path, Fate.unknown(_similar(path)))
            elif fate.seconds_as:
                self._seconds(path, value, fate)
            else:
                if path != _EXTERNAL:  # told one by one
                    self._tell(path, fate)
                if fate.is_taken:
                    into[key] = value

    def _feature_gates(self, gates: object) -> None:
        if not isinstance(gates, Mapping):
            self._causes.append(("featureGates", "must be an object"))
            return
        for name, enabled in gates.items():
            path = f"featureGates.{name}"
            if enabled is True and name in TOPOLOGY_GATES:
                setting = TOPOLOGY_GATES[name]
                self._translation.settings.setdefault("topology", {})[setting] = True
                self._tell(path, Fate.taken(f"as topology.{setting}"))
            elif isinstance(enabled, bool):
                self._tell(path, fate_of_gate(str(name), enabled=enabled))
            else:
                self._causes.append((clean(path), "must be true or false"))

    def _seconds(self, path: str, value: object, fate: Fate) -> None:
        try:
            seconds = parse_duration(value)
            if not 0.1 <= seconds <= 3600:
                raise ValueError("must be from 100ms to 1h")
        except ValueError as error:
            self._causes.append((path, str(error)))
            return
        self._translation.settings[fate.seconds_as] = seconds
        self._tell(path, fate)

    def _adapt(self, settings: dict[str, Any]) -> None:
        """Write out Kueue's defaults where those of Sluice differ, and what a kind requires in Sluice."""
        manages = settings.get("manageJobsWithoutQueueName", False)
        if not isinstance(manages, bool):
            self._causes.append(("manageJobsWithoutQueueName", "must be true or false"))
        waiting = settings.get("waitForPodsReady")
        if self._version == "v1beta1":
            for name in ("waitForPodsReady", "fairSharing"):
                if name in settings:  # the default is true in Sluice
                    settings[name] = {"enable": False, **settings[name]}
            if waiting is not None and settings["waitForPodsReady"]["enable"] is True:
                given = settings["waitForPodsReady"]
                added = {name: value for name, value in _DEFAULTS_OF_V1BETA1.items() if name not in given}
                settings["waitForPodsReady"] = {**given, **added}
                for name in added:
                    self._tell(f"waitForPodsReady.{name}", Fate.taken("from the defaults of v1beta1"))
        elif waiting is None:
            self._tell(
                "waitForPodsReady", Fate.not_taken("is not in the file: off; Kueue 0.19 waits 30m: see the docs")
            )
        if (settings.get("fairSharing") or {}).get("preemptionStrategies") == []:
            del settings["fairSharing"]["preemptionStrategies"]  # its default
        for section, name in (("waitForPodsReady", "timeout"), ("admissionFairSharing", "usageSamplingInterval")):
            if _is_zero((settings.get(section) or {}).get(name)):
                del settings[section][name]  # its default
        integrations = settings.setdefault("integrations", {})
        if not integrations.get("frameworks"):
            integrations["frameworks"] = [BATCH_JOB]  # Kueue's default
        if isinstance(integrations["frameworks"], list):
            self._frameworks(integrations)

    def _frameworks(self, integrations: dict[str, Any]) -> None:
        names = [*integrations["frameworks"]]
        external = integrations.pop(_EXTERNAL.partition(".")[2], [])
        if not isinstance(external, list):
            self._causes.append((_EXTERNAL, "must be a list"))
            external = []
        for index, name in enumerate(external):
            path = f"{_EXTERNAL}[{index}]"
            kind, dot, rest = name.partition(".") if isinstance(name, str) else ("", "", "")
            group = rest.partition(".")[2]
            if not (kind and dot and group):
                self._causes.append((path, f'"{name}" is not KIND.VERSION.GROUP, such as Foo.v1.example.com'))
            elif (ours := f"{group}/{kind.lower()}") in frameworks_known():
                names += [] if ours in names else [ours]
                self._tell(path, Fate.taken(f"as integrations.frameworks: {ours}"))
            else:
                text = f"describe {clean(kind)} in integrations.kinds (docs/kinds/user-defined.md)"
                self._tell(path, Fate.not_taken(text))
        for needing, needed in ((TRAIN_JOB, JOB_SET), *((each, "pod") for each in (*GROUPED, *LABELLED))):
            if needing in names and needed not in names:
                names.append(needed)
                self._tell("integrations.frameworks", Fate.taken(f"and {needed} is added, which {needing} needs"))
        integrations["frameworks"] = names

    def _validate(self, values: object, name: str, model: type[Model]) -> None:
        try:
            model.model_validate(values, by_alias=True, by_name=False)
        except ValidationError as error:
            self._causes += [(".".join(filter(None, (name, path))), message) for path, message in faults(error)]

    def _tell(self, path: str, fate: Fate) -> None:
        self._translation.account.append((clean(path), fate))


def _is_zero(duration: object) -> bool:
    try:
        return parse_duration(duration) == 0
    except ValueError:
        return False


def _similar(path: str) -> str:
    near = difflib.get_close_matches(path, FIELDS, n=1) if len(path) < 100 else []
    return near[0] if near else ""


def only_one(documents: Sequence[Document]) -> Document | None:
    """Return the configuration among the documents, if there is one. Raises Unreadable if there are several."""
    if len(documents) > 1:
        raise Unreadable(f"{documents[0].source} and {documents[1].source} are both Kueue's configuration; keep one")
    return documents[0] if documents else None
