"""The settings of `sluice serve`, each with one name in three spellings: flag, environment variable, file.

A flag wins over the environment, the environment over the file, the file over the default:
`--database-url`, `SLUICE_DATABASE_URL`, `databaseUrl`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

import click
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from admission.cli.configuration.addresses import split_address
from admission.cli.configuration.integrations import IntegrationsSettings
from admission.cli.configuration.notification_settings import NotificationSettings
from admission.cli.configuration.oidc_settings import OidcSettings
from admission.cli.configuration.policy_settings import (
    AdmissionFairSharingSettings,
    FairSharingSettings,
    ResourcesSettings,
    RetentionSettings,
    WaitForPodsReadySettings,
    policy,
)
from admission.cli.configuration.request_header_settings import RequestHeaderSettings
from admission.cli.configuration.settings_file import SettingsFile, read_settings_file
from admission.cli.errors import InvalidSettings
from admission.kinds.rules import Unlabelled
from admission.model.base import FieldFaultsError, LabelSelector
from admission.model.errors import StoreError
from admission.model.manifests import faults
from admission.model.names import is_dns_label
from admission.serving.logs import LogFormat, LogLevel
from admission.store.database.connection import Location
from webhooks.standing import Mode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from admission.controller.state.policy import Policy

ENVIRONMENT_PREFIX = "SLUICE_"
EXTERNAL_SERVICE: Final = "sluice-system/sluice-external"
"""The Service for `apiservice_url`, if no other one is named: none that the chart makes, too."""


def _address(text: str) -> str:
    split_address(text)
    return text


def _https_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f'"{text}" is no https://HOST:PORT; the API server calls Sluice over TLS only')
    return text.rstrip("/")


def _namespaced_name(text: str) -> str:
    parts = text.split("/")
    if len(parts) != 2 or not all(map(is_dns_label, parts)):
        raise ValueError(f'"{text}" is no NAMESPACE/NAME')
    return text


def _no_blank(secret: SecretStr) -> SecretStr:
    value = secret.get_secret_value()
    if not value.isascii() or not value.isprintable() or " " in value or not value:
        raise ValueError("must not be empty or hold spaces, control or non-ASCII characters")
    return secret


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


Address = Annotated[str, AfterValidator(_address)]
NamespacedName = Annotated[str, AfterValidator(_namespaced_name)]
Seconds = Annotated[float, Field(ge=0.1, le=3600)]


class Settings(BaseSettings):
    """What `sluice serve` can be told."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )
    file: ClassVar[Mapping[str, Any]] = {}
    """What the configuration file says, by field name; `load_settings` gives each load a class with its own."""

    kubeconfig: Path | None = Field(None, description="Credentials of the cluster; in a pod its service account.")
    context: str | None = Field(None, description="Context of the kubeconfig, if not its current one.")
    database_url: str = Field(
        "sqlite:///sluice.db", description="sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME."
    )
    database_url_file: Path | None = Field(
        None, description="A file with nothing but the database's URL, in place of it; for a URL with a password."
    )
    migrate: bool = Field(
        False, description="Bring the database's tables up to date at the start, one replica at a time."
    )
    admin_token: Annotated[SecretStr, AfterValidator(_no_blank)] | None = Field(
        None, description="A token for the REST API that may everything, beside those that the cluster knows."
    )
    api_address: Address = Field("127.0.0.1:8080", description="HOST:PORT of the REST API.")
    api_certificate: Path | None = Field(
        None, description="PEM file of the API's certificate; without it Sluice makes its own, except on loopback."
    )
    api_key: Path | None = Field(None, description="PEM file of the key of apiCertificate.")
    api_ca: Path | None = Field(None, description="PEM file of the CA of apiCertificate, for the APIService.")
    api_service: NamespacedName = Field(
        "sluice-system/sluice-api",
        description="NAMESPACE/NAME of the Service by which the API server reaches the API; "
        f"with apiserviceUrl by default {EXTERNAL_SERVICE}.",
    )
    apiservice: bool = Field(
        False, description="Register the API with the API server, so that kubectl gets queues; inside a pod."
    )
    apiservice_url: Annotated[str, AfterValidator(_https_url)] | None = Field(
        None, description="The same from outside a pod: https://HOST:PORT under which the API server reaches the API."
    )
    token_audience: str | None = Field(
        None, description="Whom tokens for the API must be meant for, if not for the API server."
    )
    oidc: OidcSettings | None = Field(
        None, description="At which OpenID Connect issuer people can sign in to the dashboard."
    )
    request_header: RequestHeaderSettings | None = Field(
        None, description="Which proxy in front of API and dashboard is believed about its users."
    )
    webhook_url: Annotated[str, AfterValidator(_https_url)] | None = Field(
        None, description="https://HOST:PORT under which the API server reaches the webhooks from outside a pod."
    )
    webhook_service: NamespacedName = Field(
        "sluice-system/sluice-webhook", description="NAMESPACE/NAME of the Service for the webhooks, inside a pod."
    )
    webhook_address: Address = Field(":9443", description="HOST:PORT that the webhooks listen on.")
    webhook_process: bool = Field(
        True, description="Answer the webhooks by a process of serve's own; no if `sluice webhook` runs elsewhere."
    )
    webhook_ca: Path | None = Field(
        None,
        description="PEM file of the CA of the certificate that `sluice webhook` shows, if Sluice does not make it.",
    )
    certificate_directory: Path = Field(
        Path("sluice-certificates"), description="Where the webhooks' certificates are kept."
    )
    certificate_secret: NamespacedName | None = Field(
        None,
        description="NAMESPACE/NAME of the Secret by which replicas share the webhooks' certificates; "
        "in a pod sluice-webhook-certificates in its own namespace.",
    )
    lease: NamespacedName | None = Field(
        None,
        description="NAMESPACE/NAME of the Lease by which replicas on one PostgreSQL elect who decides; "
        "in a pod sluice in its own namespace.",
    )
    lease_duration: Seconds = Field(15.0, description="Seconds without a renewal after which others take the Lease.")
    renew_deadline: Seconds = Field(10.0, description="Seconds without a renewal after which its holder stops.")
    retry_period: Seconds = Field(2.0, description="Seconds between two renewals of the Lease.")
    admission: Mode = Field(
        "webhooks",
        description="What gates Jobs: Sluice's webhooks, admission policies in the API server (Kubernetes 1.36), or "
        "auto: policies where the API server has them.",
    )
    manage_jobs_without_queue_name: bool = Field(
        False, description="Queue Jobs without a queue label, too, in the LocalQueue default of their namespace."
    )
    managed_jobs_namespace_selector: LabelSelector | None = Field(
        None, description="In which namespaces that is so; without it in all but kube-system and Sluice's own."
    )
    accept_kueue_labels: bool = Field(
        True, description="Queue Jobs by their kueue.x-k8s.io/queue-name label, too, and read Kueue's other labels."
    )
    integrations: IntegrationsSettings = Field(
        IntegrationsSettings(), description="Which kinds of objects are queued, and users' own kinds."
    )
    fair_sharing: FairSharingSettings | None = Field(
        None, description="Fair sharing by dominant resource share, in all cohorts."
    )
    admission_fair_sharing: AdmissionFairSharingSettings | None = Field(
        None, description="LocalQueues that used less lately come first."
    )
    resources: ResourcesSettings | None = Field(None, description="What of a pod's requests counts, and as what.")
    wait_for_pods_ready: WaitForPodsReadySettings | None = Field(
        None, description="Evict workloads whose pods are not all ready in time."
    )
    audit_interval: Annotated[float, Field(ge=0, le=86400)] = Field(
        600.0, description="Seconds between two comparisons of database and cluster by the leader; 0: none."
    )
    retention: RetentionSettings = Field(
        RetentionSettings(), description="How long finished workloads and audit records are kept."
    )
    notifications: NotificationSettings = Field(
        NotificationSettings(), description="Who may be notified by Subscriptions, and where requests for it may go."
    )
    opentelemetry: bool = Field(
        False, description="Send traces by OpenTelemetry (OTLP over HTTP), where OTEL_EXPORTER_OTLP_ENDPOINT says."
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = Field(
        "info", description="The least of what is logged; all: debug, and what libraries say."
    )
    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = Field(
        "text", description="How it is logged: text, or json, an object on each line."
    )

    def policy(self) -> Policy:
        """What the operator decides for all workloads."""
        return policy(
            fair_sharing=self.fair_sharing,
            admission_fair_sharing=self.admission_fair_sharing,
            resources=self.resources,
            wait_for_pods_ready=self.wait_for_pods_ready,
            unlabelled=Unlabelled(self.managed_namespaces(), self.integrations.queue_rules()),
        )

    def managed_namespaces(self) -> LabelSelector | None:
        """Those in which everything is queued; None: there are none."""
        managed = self.managed_jobs_namespace_selector or LabelSelector()
        return managed if self.manage_jobs_without_queue_name else None

    @model_validator(mode="after")
    def _rules_are_for_webhooks(self) -> Settings:
        if self.integrations.rules and self.admission != "webhooks":
            message = (
                f"are applied by the webhooks alone: leave them out, or set admission to webhooks, not {self.admission}"
            )
            raise FieldFaultsError([("integrations.rules", message)])
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment, file: in that order, and nothing else."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=dict(cls.file))


NESTED = frozenset(
    {
        "fair_sharing",
        "integrations",
        "admission_fair_sharing",
        "managed_jobs_namespace_selector",
        "notifications",
        "oidc",
        "request_header",
        "resources",
        "retention",
        "wait_for_pods_ready",
    }
)
"""Settings that are objects: given in the file, or as JSON in the environment."""


def load_settings(flags: Mapping[str, Any], *, config: Path | None = None) -> Settings:
    """The settings in force. `flags` are by field name, those that were not given None; `config` is the file.

    Raises InvalidSettings, which names the setting and where it was given.
    """
    settings, file = read_settings(flags, config=config)
    given = {name for name, value in flags.items() if value is not None}
    _warn_of_password(flags.get("database_url"))
    environment = {name for name in _DATABASE if os.environ.get(variable_of(name))}
    url_file = _database_url_file(settings, (given, environment, file.content.keys()))
    return settings if url_file is None else settings.model_copy(update={"database_url": _database_url(url_file)})


def read_settings(flags: Mapping[str, Any], *, config: Path | None = None) -> tuple[Settings, SettingsFile]:
    """The same before any file that they name is read, and the configuration file. Raises InvalidSettings."""
    given = {name: value for name, value in flags.items() if value is not None}
    read = SettingsFile() if config is None else read_settings_file(config, Settings.model_fields)

    class Loaded(Settings):
        file = read.content

    try:
        return Loaded(**given), read
    except ValidationError as error:
        causes = [_explain(path, message, given, read) for path, message in faults(error)]
        raise InvalidSettings("; ".join(causes)) from error
    except SettingsError as error:  # the message names the field
        raise InvalidSettings(f"an environment variable holds no JSON: {error}") from error


def origin(name: str, flags: Mapping[str, Any], file: SettingsFile) -> str:
    """Where a setting was given: by flag, variable, `FILE:LINE`, or not at all (`default`)."""
    if flags.get(name) is not None:
        return flag_of(name)
    if os.environ.get(variable_of(name)):
        return variable_of(name)
    return file.place(to_camel(name)) if name in file.content else "default"


_DATABASE: Final = ("database_url", "database_url_file")


def _database_url_file(settings: Settings, sources: Iterable[Collection[str]]) -> Path | None:
    """The file to read the database's URL from, by the first of the sources that says where the database is."""
    for source in sources:
        named = [name for name in _DATABASE if name in source]
        if len(named) == 2:
            raise InvalidSettings("databaseUrl and databaseUrlFile both say where the database is: give one of the two")
        if named:
            return settings.database_url_file if named == ["database_url_file"] else None
    return None


def _database_url(file: Path) -> str:
    try:
        url = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the file {file} with the database's URL cannot be read: {error}") from error
    if not url:
        raise InvalidSettings(f"the file {file} is empty; it should hold the database's URL")
    return url


def _warn_of_password(flag: str | None) -> None:
    with suppress(StoreError):  # it is told where it is used
        if flag is not None and Location.parse(flag).url.password:
            text = "every user of this machine can read the password in --database-url while the command runs"
            click.echo(f"warning: {text}; give SLUICE_DATABASE_URL or --database-url-file instead", err=True)


def _explain(path: str, message: str, flags: Mapping[str, Any], file: SettingsFile) -> str:
    name, dot, inner = path.partition(".")
    if name in flags:
        where = flag_of(name)
    elif os.environ.get(variable_of(name)):
        where = f"the environment variable {variable_of(name)}" + (f", {inner}" if inner else "")
    else:
        spelled = f"{to_camel(name)}{dot}{inner}"
        where = f"{spelled} in {file.place(spelled)}"
    return f"{where}: {message}"


def flag_of(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT_PREFIX + name.upper()
