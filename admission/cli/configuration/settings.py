"""Settings of `sluice serve`, loaded from flags, environment variables and the configuration file.

Each setting has one name in three spellings: `--database-url`, `SLUICE_DATABASE_URL`, `databaseUrl`. A flag overrides
the environment, the environment the file, and the file the default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self
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

from admission.api.auth.oidc.client import Algorithm, OidcClient
from admission.cli.configuration.addresses import split_address
from admission.cli.configuration.integrations import IntegrationsSettings
from admission.cli.configuration.notification_settings import NotificationSettings, http_url
from admission.cli.configuration.policy_settings import (
    AdmissionFairSharingSettings,
    Duration,
    FailureRecoverySettings,
    FairSharingSettings,
    ResourcesSettings,
    RetentionSettings,
    TopologySettings,
    WaitForPodsReadySettings,
    policy,
)
from admission.cli.configuration.settings_file import SettingsFile, read_settings_file
from admission.cli.errors import InvalidSettings
from admission.cluster.usage_sources import OF_METRICS_API
from admission.controller.state.policy import UsageRules
from admission.kinds.rules import Unlabelled
from admission.model.base import FieldFaultsError, LabelSelector, Model
from admission.model.errors import StoreError
from admission.model.manifests import faults
from admission.model.names import is_dns_label
from admission.serving.logs import LogFormat, LogLevel
from admission.store.database.connection import Location
from webhooks.gate_reconciler import Mode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from admission.controller.state.policy import ControllerPolicy

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SHORTEST_SESSION: Final = 60.0
_LONGEST_SESSION: Final = 8 * 3600.0
"""Seconds."""


def _issuer(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f'"{text}" is not an https URL without query and fragment')
    return text


def _own(text: str) -> str:
    parts = urlsplit(text)
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not safe or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in text:
        raise ValueError(f'"{text}" is not https://HOST[:PORT] (http only on loopback)')
    return text.rstrip("/")


def _session(seconds: float) -> float:
    if not _SHORTEST_SESSION <= seconds <= _LONGEST_SESSION:
        raise ValueError("must be from 1m to 8h")
    return seconds


class OidcSettings(Model):
    """The issuer at which users sign in to the dashboard, and how its claims map to user names and groups."""

    issuer_url: Annotated[str, AfterValidator(_issuer)]
    """URL of the issuer, exactly as in its `iss` claim, such as https://accounts.example.com. Required."""
    client_id: Annotated[str, Field(min_length=1)]
    """Sluice's client ID at the issuer; ID tokens must have it as audience. Required."""
    client_secret_file: Path | None = None
    """File that contains only the client secret. Default: none, for a public client."""
    url: Annotated[str, AfterValidator(_own)]
    """https://HOST[:PORT] of the dashboard for browsers; register URL/ui/sign-in as redirect URI. Required."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """Scopes to request from the issuer; some issuers need an additional one for groups.

    Default: openid, profile, email."""
    ca_file: Path | None = None
    """PEM file with the CA of the issuer's certificate. Default: the CAs of the system."""
    username_claim: str = "sub"
    """Claim with the user name; `email` is accepted only if the issuer has verified it. Default: sub."""
    username_prefix: str | None = None
    """Prefix of user names; "-" for none. Default: the issuer's URL and "#", but no prefix for the claim `email`."""
    groups_claim: str = ""
    """Claim that contains the user's groups. Default: users have no groups."""
    groups_prefix: str = ""
    """Prefix of groups. Default: none."""
    required_claims: dict[str, str] = Field(default_factory=dict)
    """Claims that an ID token must contain, with their values."""
    signing_algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256",)
    """Signing algorithms that are accepted for ID tokens. Default: RS256."""
    session_duration: Annotated[Duration, AfterValidator(_session)] = 3600.0
    """Duration of a session, from 1m to 8h; a change of groups takes effect at the next sign-in. Default: 1h."""

    def client(self) -> OidcClient:
        """Return the OpenID Connect client that these settings describe."""
        prefix = self.username_prefix
        if prefix is None:
            prefix = "" if self.username_claim == "email" else f"{self.issuer_url}#"
        return OidcClient(
            issuer=self.issuer_url,
            client_id=self.client_id,
            url=self.url,
            session_seconds=self.session_duration,
            scopes=tuple(dict.fromkeys(("openid", *self.scopes))),
            client_secret_file=self.client_secret_file,
            ca_file=self.ca_file,
            username_claim=self.username_claim,
            username_prefix="" if prefix == "-" else prefix,
            groups_claim=self.groups_claim,
            groups_prefix=self.groups_prefix,
            required_claims=tuple(self.required_claims.items()),
            algorithms=self.signing_algorithms,
        )


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


_QUERIES: Final = {
    "cpu": 'sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!=""}[5m]))',
    "memory": 'sum by (namespace, pod) (container_memory_working_set_bytes{container!=""})',
    "nvidia.com/gpu": "sum by (namespace, pod, exported_namespace, exported_pod) (DCGM_FI_DEV_GPU_UTIL) / 100",
}


class PrometheusSettings(Model):
    """The Prometheus that has metrics of the pods."""

    url: Annotated[str, AfterValidator(http_url)]
    """URL of Prometheus, or of what has its API."""
    token_file: Path | None = None
    """File that contains only the bearer token to send. Default: none."""
    ca_file: Path | None = None
    """PEM file with the CA of its certificate. Default: those of the system."""
    queries: Mapping[str, str] = {}
    """PromQL by resource, in place of those for cpu, memory and nvidia.com/gpu: what each pod uses, in cores, bytes or
    units, with the labels `namespace` and `pod`. Empty: the resource is not measured."""


class UsageMetricsSettings(Model):
    """Measurement of what workloads use of what they hold. Enabled if the object is present."""

    prometheus: PrometheusSettings | None = None
    """Read CPU, memory and GPUs from Prometheus."""
    metrics_api: bool = False
    """Read CPU and memory from the metrics API of the cluster (metrics.k8s.io), instead. Default: false."""
    interval: Annotated[Duration, Field(ge=1, le=3600)] = UsageRules().interval
    """Time between two readings; each stands for the time since the one before. Default: 1m."""
    idle_after: Annotated[Duration, Field(gt=0)] | None = None
    """Time without use after which a workload's history says that it is idle, as do notifications. Default: never."""
    idle_below_percent: Annotated[float, Field(gt=0, le=100)] = 100 * UsageRules().idle_below
    """Percentage of what it holds below which it does not use it. Default: 5."""
    idle_resources: tuple[str, ...] = UsageRules().idle_resources
    """Resources of which idleness is told. Default: nvidia.com/gpu."""

    @model_validator(mode="after")
    def _measures_what_it_tells(self) -> Self:
        if (self.prometheus is None) is not self.metrics_api:
            raise FieldFaultsError([("prometheus", "give either this, or metricsApi: true")])
        read = OF_METRICS_API if self.metrics_api else self.rules().queries
        for position, name in enumerate(self.idle_resources if self.idle_after is not None else ()):
            if name not in read:
                message = f"{name} is not measured; name one of {', '.join(read)}, or measure it by prometheus.queries"
                raise FieldFaultsError([(f"idleResources[{position}]", message)])
        return self

    def rules(self) -> UsageRules:
        """Return the controller's rules."""
        source = self.prometheus
        queries = {} if source is None else {**_QUERIES, **source.queries}
        return UsageRules(
            url=None if source is None else source.url,
            queries={name: query for name, query in queries.items() if query},
            token_file=None if source is None else source.token_file,
            ca_file=None if source is None else source.ca_file,
            interval=self.interval,
            idle_after=self.idle_after,
            idle_below=self.idle_below_percent / 100,
            idle_resources=self.idle_resources,
        )


ENVIRONMENT_PREFIX = "SLUICE_"
EXTERNAL_SERVICE: Final = "sluice-system/sluice-external"
"""Default Service for `apiservice_url`; differs from the chart's Service, so that both can be in one cluster."""


def _address(text: str) -> str:
    split_address(text)
    return text


def _https_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f'"{text}" is not https://HOST:PORT; the API server calls Sluice over TLS only')
    return text.rstrip("/")


def _namespaced_name(text: str) -> str:
    parts = text.split("/")
    if len(parts) != 2 or not all(map(is_dns_label, parts)):
        raise ValueError(f'"{text}" is not NAMESPACE/NAME')
    return text


def _no_blank(secret: SecretStr) -> SecretStr:
    value = secret.get_secret_value()
    if not value.isascii() or not value.isprintable() or " " in value or not value:
        raise ValueError("must not be empty or contain spaces, control or non-ASCII characters")
    return secret


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


Address = Annotated[str, AfterValidator(_address)]
NamespacedName = Annotated[str, AfterValidator(_namespaced_name)]
Seconds = Annotated[float, Field(ge=0.1, le=3600)]


class Settings(BaseSettings):
    """All settings of `sluice serve`; the descriptions are the help of the flags and the reference of the settings."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )
    file: ClassVar[Mapping[str, Any]] = {}
    """Content of the configuration file, by field name; `read_settings` sets it on a subclass for each load."""

    kubeconfig: Path | None = Field(
        None,
        description="Kubeconfig with the credentials for the cluster. Default: in a pod its service account, else "
        "$KUBECONFIG or ~/.kube/config.",
    )
    context: str | None = Field(None, description="Context of the kubeconfig. Default: its current context.")
    cluster_credentials: Path | None = Field(
        None,
        description="Directory of the kubeconfigs that Cluster objects name, by which further clusters join. Default: "
        "none, no cluster can join.",
    )
    cluster_lost_timeout: Annotated[float, Field(ge=10, le=604_800)] = Field(
        900.0, description="Seconds after which workloads that were dispatched to a lost cluster are queued again."
    )
    database_url: str = Field(
        "sqlite:///sluice.db", description="Database URL: sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME."
    )
    database_url_file: Path | None = Field(
        None, description="File that contains only the database URL, instead of databaseUrl; for a URL with a password."
    )
    migrate: bool = Field(
        False, description="Migrate the database schema at startup, one replica at a time, as `sluice migrate` does."
    )
    admin_token: Annotated[SecretStr, AfterValidator(_no_blank)] | None = Field(
        None, description="Bearer token with all rights to the REST API, in addition to the cluster's own tokens."
    )
    api_address: Address = Field("127.0.0.1:8080", description="HOST:PORT that REST API and dashboard listen on.")
    api_certificate: Path | None = Field(
        None,
        description="PEM file with the API's certificate. Default: Sluice generates one; on loopback plain HTTP.",
    )
    api_key: Path | None = Field(None, description="PEM file with the private key of apiCertificate.")
    api_ca: Path | None = Field(None, description="PEM file with the CA of apiCertificate, for the APIService.")
    api_service: NamespacedName = Field(
        "sluice-system/sluice-api",
        description="NAMESPACE/NAME of the Service through which the API server reaches the REST API. With "
        f"apiserviceUrl the default is {EXTERNAL_SERVICE}.",
    )
    apiservice: bool = Field(
        False,
        description="Register the REST API as an APIService, so that kubectl works with queues; for Sluice in a pod.",
    )
    apiservice_url: Annotated[str, AfterValidator(_https_url)] | None = Field(
        None,
        description="Register the APIService for Sluice outside the cluster: https://HOST:PORT at which the API server "
        "reaches the REST API.",
    )
    token_audience: str | None = Field(
        None, description="Audience that the cluster's tokens for the REST API must have. Default: the API server's."
    )
    oidc: OidcSettings | None = Field(
        None, description="OpenID Connect issuer at which users sign in to the dashboard. Default: none."
    )
    request_header: RequestHeaderSettings | None = Field(
        None, description="Authenticating proxy in front of REST API and dashboard whose user headers are trusted."
    )
    webhook_url: Annotated[str, AfterValidator(_https_url)] | None = Field(
        None,
        description="https://HOST:PORT at which the API server reaches the webhooks, for Sluice outside the cluster. "
        "Default: none, webhooks are registered only by Sluice in a pod.",
    )
    webhook_service: NamespacedName = Field(
        "sluice-system/sluice-webhook", description="NAMESPACE/NAME of the Service of the webhooks; used in a pod."
    )
    webhook_address: Address = Field(
        ":9443",
        description="HOST:PORT that the webhooks listen on. With webhookUrl the default is its port, on all addresses, "
        "or on loopback alone if its host is; without it, outside a cluster, port 9443 on loopback.",
    )
    webhook_process: bool = Field(
        True, description="Serve the webhooks in a child process. Disable it if `sluice webhook` runs separately."
    )
    webhook_ca: Path | None = Field(
        None,
        description="PEM file with the CA of the certificate of `sluice webhook`, if Sluice does not generate it.",
    )
    certificate_directory: Path = Field(
        Path("sluice-certificates"), description="Directory of the certificates and keys that Sluice generates."
    )
    certificate_secret: NamespacedName | None = Field(
        None,
        description="NAMESPACE/NAME of the Secret through which replicas share the certificates that Sluice generates. "
        "Default in a pod: sluice-webhook-certificates in its own namespace.",
    )
    lease: NamespacedName | None = Field(
        None,
        description="NAMESPACE/NAME of the Lease by which replicas on one PostgreSQL database elect the leader. "
        "Default in a pod: sluice in its own namespace.",
    )
    lease_duration: Seconds = Field(15.0, description="Seconds without renewal until another replica takes the Lease.")
    renew_deadline: Seconds = Field(
        10.0, description="Seconds without renewal until the leader steps down; less than leaseDuration."
    )
    retry_period: Seconds = Field(2.0, description="Seconds between renewals; at most half of renewDeadline.")
    admission: Mode = Field(
        "webhooks",
        description="How Jobs are gated: by Sluice's webhooks, by admission policies in the API server (Kubernetes "
        "1.36 or later), or auto: by policies if the API server supports them.",
    )
    manage_jobs_without_queue_name: bool = Field(
        False, description="Queue Jobs without a queue label, too, in the LocalQueue `default` of their namespace."
    )
    managed_jobs_namespace_selector: LabelSelector | None = Field(
        None,
        description="Namespaces that manageJobsWithoutQueueName and createLocalQueues apply to. "
        "Default: all but kube-system and Sluice's.",
    )
    create_local_queues: Literal["none", "default", "cluster-queue"] = Field(
        "none",
        description="LocalQueues that Sluice creates in each namespace that a ClusterQueue selects: none, one named "
        "`default`, or one for each ClusterQueue with its name.",
    )
    accept_kueue_labels: bool = Field(
        True, description="Accept the label kueue.x-k8s.io/queue-name and Kueue's other labels as well as Sluice's."
    )
    integrations: IntegrationsSettings = Field(
        IntegrationsSettings(),
        description="Kinds of objects that are queued, and the labels and fields that name a queue.",
    )
    fair_sharing: FairSharingSettings | None = Field(
        None, description="Fair sharing by dominant resource share, in all cohorts. Default: disabled."
    )
    admission_fair_sharing: AdmissionFairSharingSettings | None = Field(
        None,
        description="Admission fair sharing: LocalQueues with less recent usage come first, in ClusterQueues whose "
        "admissionScope enables it. Default: disabled.",
    )
    resources: ResourcesSettings | None = Field(
        None, description="Which resource requests of pods count against quota, and as which resources."
    )
    topology: TopologySettings = Field(
        TopologySettings(), description="Placement of pods by topology, for flavors that name a Topology."
    )
    wait_for_pods_ready: WaitForPodsReadySettings | None = Field(
        None, description="Eviction of admitted workloads whose pods are not all ready in time. Default: disabled."
    )
    failure_recovery: FailureRecoverySettings | None = Field(
        None,
        description="Forced end of pods that stay terminating on unreachable nodes, if they have the annotation "
        "sluice.dev/safe-to-forcefully-delete. Default: disabled.",
    )
    usage_metrics: UsageMetricsSettings | None = Field(
        None,
        description="Measurement of what workloads use of what they hold, for reports of idle resources. Default: "
        "disabled.",
    )
    audit_interval: Annotated[float, Field(ge=0, le=86400)] = Field(
        600.0,
        description="Seconds between audits, which compare database and cluster and repair differences; 0: no audits.",
    )
    retention: RetentionSettings = Field(
        RetentionSettings(), description="How long finished workloads and audit records stay in the database."
    )
    notifications: NotificationSettings = Field(
        NotificationSettings(),
        description="Receivers that Subscriptions may name, and networks that requests may go to.",
    )
    opentelemetry: bool = Field(
        False, description="Export OpenTelemetry traces to OTEL_EXPORTER_OTLP_ENDPOINT (OTLP over HTTP)."
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = Field(
        "info", description="Lowest level of messages to log; all: debug, and the messages of libraries."
    )
    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = Field(
        "text", description="Log format: text, or json with one object per line."
    )

    def policy(self) -> ControllerPolicy:
        """Return the policy that applies to all workloads."""
        return policy(
            fair_sharing=self.fair_sharing,
            admission_fair_sharing=self.admission_fair_sharing,
            resources=self.resources,
            topology=self.topology,
            wait_for_pods_ready=self.wait_for_pods_ready,
            failure_recovery=self.failure_recovery,
            lost_timeout=self.cluster_lost_timeout,
            unlabelled=Unlabelled(self.managed_namespaces(), self.integrations.queue_rules()),
            measured=None if self.usage_metrics is None else self.usage_metrics.rules(),
        )

    def managed_namespaces(self) -> LabelSelector | None:
        """Return the selector of managed namespaces, in which everything is queued; None if there are none."""
        managed = self.managed_jobs_namespace_selector or LabelSelector()
        return managed if self.manage_jobs_without_queue_name else None

    @model_validator(mode="after")
    def _rules_are_for_webhooks(self) -> Settings:
        if self.integrations.rules and self.admission != "webhooks":
            message = (
                f"are applied only by the webhooks: leave them out, or set admission to webhooks, not {self.admission}"
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
        """Return the sources in order of precedence: flags, environment, file."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=dict(cls.file))


NESTED = frozenset(
    {
        "fair_sharing",
        "integrations",
        "admission_fair_sharing",
        "failure_recovery",
        "managed_jobs_namespace_selector",
        "notifications",
        "oidc",
        "request_header",
        "resources",
        "retention",
        "topology",
        "usage_metrics",
        "wait_for_pods_ready",
    }
)
"""Settings that are objects: configured in the file, or as JSON in the environment."""


def load_settings(flags: Mapping[str, Any], *, config: Path | None = None) -> Settings:
    """Load the effective settings, including the database URL from `databaseUrlFile`.

    `flags` maps field names to values, None for flags that were not given; `config` is the configuration file. Raises
    InvalidSettings, whose message names the setting and its source.
    """
    settings, file = read_settings(flags, config=config)
    given = {name for name, value in flags.items() if value is not None}
    _warn_of_password(flags.get("database_url"))
    environment = {name for name in _DATABASE if os.environ.get(variable_of(name))}
    url_file = _database_url_file(settings, (given, environment, file.content.keys()))
    return settings if url_file is None else settings.model_copy(update={"database_url": _database_url(url_file)})


def read_settings(flags: Mapping[str, Any], *, config: Path | None = None) -> tuple[Settings, SettingsFile]:
    """Return settings and configuration file without reading the files that settings name. Raises InvalidSettings."""
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
        raise InvalidSettings(f"an environment variable does not contain JSON: {error}") from error


def origin(name: str, flags: Mapping[str, Any], file: SettingsFile) -> str:
    """Return the source of a setting's value: its flag, its environment variable, `FILE:LINE`, or `default`."""
    if flags.get(name) is not None:
        return flag_of(name)
    if os.environ.get(variable_of(name)):
        return variable_of(name)
    return file.place(to_camel(name)) if name in file.content else "default"


_DATABASE: Final = ("database_url", "database_url_file")


def _database_url_file(settings: Settings, sources: Iterable[Collection[str]]) -> Path | None:
    """Return the file to read the database URL from, if the first source that configures the database names a file.

    `sources` are names of settings, in order of precedence. Raises InvalidSettings if one source has both settings.
    """
    for source in sources:
        named = [name for name in _DATABASE if name in source]
        if len(named) == 2:
            raise InvalidSettings("databaseUrl and databaseUrlFile exclude each other: give one of the two")
        if named:
            return settings.database_url_file if named == ["database_url_file"] else None
    return None


def _database_url(file: Path) -> str:
    try:
        url = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the file {file} with the database URL cannot be read: {error}") from error
    if not url:
        raise InvalidSettings(f"the file {file} is empty; it should contain the database URL")
    return url


def _warn_of_password(flag: str | None) -> None:
    with suppress(StoreError):  # an invalid URL is reported where it is used
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
    """Return the flag of a setting: `--database-url` for `database_url`."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """Return the environment variable of a setting: `SLUICE_DATABASE_URL` for `database_url`."""
    return ENVIRONMENT_PREFIX + name.upper()
