"""Settings: precedence of their sources, and errors in them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from admission.cli.configuration.addresses import split_address
from admission.cli.configuration.settings import Settings, load_settings
from admission.cli.errors import InvalidSettings
from admission.cli.main import main
from admission.cli.serve.aggregation import has_tls
from admission.cli.serve.certificates import OwnCertificates
from admission.cluster.client import Client


def test_settings_have_defaults():
    settings = load_settings({"kubeconfig": None})
    assert settings.database_url == "sqlite:///sluice.db"
    assert settings.api_address == "127.0.0.1:8080"
    assert settings.accept_kueue_labels
    assert settings.admin_token is None


def test_flags_override_environment_which_overrides_file_and_defaults(config, monkeypatch):
    file = config(
        "apiVersion: sluice.dev/v1\nkind: Configuration\n"
        "databaseUrl: sqlite:///file.db\napiAddress: ':1'\nkubeconfig: file\nacceptKueueLabels: false\n"
    )
    monkeypatch.setenv("SLUICE_DATABASE_URL", "sqlite:///environment.db")
    monkeypatch.setenv("SLUICE_KUBECONFIG", "environment")
    settings = load_settings({"kubeconfig": "flag", "database_url": None}, config=file)
    assert settings.kubeconfig == Path("flag")
    assert settings.database_url == "sqlite:///environment.db"
    assert settings.api_address == ":1"
    assert not settings.accept_kueue_labels
    assert settings.log_level == "info"
    # The next call does not use the content of this file.
    assert load_settings({}).api_address == "127.0.0.1:8080"


URL = "postgresql://sluice:s3cret@db/sluice"


def test_database_url_file_has_the_precedence_of_its_source(config, monkeypatch, tmp_path):
    secret = tmp_path / "url"
    secret.write_text(f"{URL}\n")
    file = config(f"databaseUrlFile: {secret}\n")
    assert load_settings({}, config=file).database_url == URL
    assert load_settings({"database_url": "sqlite:///flag.db"}, config=file).database_url == "sqlite:///flag.db"
    monkeypatch.setenv("SLUICE_DATABASE_URL", "sqlite:///environment.db")
    assert load_settings({}, config=file).database_url == "sqlite:///environment.db"
    assert load_settings({"database_url_file": str(secret)}).database_url == URL
    with pytest.raises(InvalidSettings, match="give one of the two"):
        load_settings({"database_url": URL, "database_url_file": str(secret)})


@pytest.mark.parametrize(
    ("content", "said"), [(None, "cannot be read"), (b"\n", "is empty"), (b"\xff", "cannot be read")]
)
def test_unreadable_or_empty_database_url_file_is_an_error(tmp_path, content, said):
    if content is not None:
        (tmp_path / "url").write_bytes(content)
    with pytest.raises(InvalidSettings, match=f"the file {tmp_path}/url .*{said}"):
        load_settings({"database_url_file": str(tmp_path / "url")})


@pytest.fixture
def restored_signal_handlers():
    """Restores the signal handlers that `serve` replaces for the rest of its process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("command", [["migrate"], ["export", "-"], ["import", "x"], ["audit"], ["serve"],
                                     ["import", "kueue", "-f", "queues.yaml"]])  # fmt: skip
@pytest.mark.usefixtures("restored_signal_handlers")
def test_password_in_a_flag_causes_a_warning_and_is_never_printed(command, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queues.yaml").write_text("{apiVersion: sluice.dev/v1, kind: ResourceFlavor, metadata: {name: f}}")
    url = "postgresql://sluice:s3cret@127.0.0.1:1/sluice"  # nobody listens there
    done = CliRunner().invoke(main, [*command, "--database-url", url])
    assert done.exit_code != 0
    assert "every user of this machine can read the password in --database-url" in done.output
    assert "s3cret" not in done.output
    elsewhere = CliRunner().invoke(main, command, env={"SLUICE_DATABASE_URL": url})
    assert "every user" not in elsewhere.output
    assert "s3cret" not in elsewhere.output


def test_refused_database_url_does_not_print_its_password():
    for url in ("sqlite://u:s3cret@h/x.db", "sqlite:///x.db?p=s3cret", "mysql://u:s3cret@h/x", "postgresql://u:s3cret@h",
                "postgresql://u:s3cret@h:port/x", "postgresql://u:s3cret@h/x?password=s3cret"):  # fmt: skip
        done = CliRunner().invoke(main, ["migrate"], env={"SLUICE_DATABASE_URL": url})
        assert done.exit_code == 1
        assert "s3cret" not in done.output


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("0", False), ("no", False), ("1", True)])
def test_boolean_in_the_environment_is_parsed(monkeypatch, text, expected):
    monkeypatch.setenv("SLUICE_ACCEPT_KUEUE_LABELS", text)
    assert load_settings({}).accept_kueue_labels is expected


def test_empty_file_and_empty_variable_leave_the_defaults(config, monkeypatch):
    monkeypatch.setenv("SLUICE_API_ADDRESS", "")
    assert load_settings({}, config=config("# nothing yet\n")).api_address == "127.0.0.1:8080"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("databaseurl: x", '"databaseurl" in {}:1 is not a setting; did you mean "databaseUrl"?'),
        ("database-url: x", '"database-url" in {}:1 is not a setting; did you mean "databaseUrl"?'),
        ("database_url: x", '"database_url" in {}:1 is not a setting; did you mean "databaseUrl"?'),
        ("colour: blue", '"colour" in {}:1 is not a setting; known are kubeconfig, '),
        ("databaseUrl: 3", "databaseUrl in {}:1: "),
        ("acceptKueueLabels: perhaps", "acceptKueueLabels in {}:1: "),
        ("logLevel: loud", "logLevel in {}:1: "),
        ("apiAddress: 8080", "apiAddress in {}:1: "),
        ("apiAddress: '8080'", 'apiAddress in {}:1: "8080" is not an address; expected HOST:PORT'),
        ("webhookUrl: http://a", 'webhookUrl in {}:1: "http://a" is not https://HOST:PORT'),
        ("webhookUrl: https://:9443", "webhookUrl in {}:1: "),
        ("webhookUrl: 'https://[::'", "webhookUrl in {}:1: "),
        ("webhookService: sluice-webhook", 'webhookService in {}:1: "sluice-webhook" is not NAMESPACE/NAME'),
        ("kind: ClusterQueue", "kind in {} must be Configuration"),
        ("admission: both", "admission in {}:1: \"both\" is not one of 'webhooks', 'policies' or 'auto'"),
        (
            "managedJobsNamespaceSelector: {matchExpressions: [{key: team, operator: Is}]}",
            "managedJobsNamespaceSelector.matchExpressions[0].operator in {}:1: ",
        ),
        ("apiVersion: v1", "apiVersion in {} must be sluice.dev/v1"),
        ("a: [", "the configuration file {}: line 2"),
        ("- a", "the configuration file {}: "),
        ("logLevel: info\nlogLevel: debug", "given twice"),
        ("logLevel: info\n---\nlogLevel: debug", "{} holds 2 documents"),
    ],
)
def test_invalid_file_is_reported_on_one_line_with_key_and_file(config, text, says):
    file = config(text)
    with pytest.raises(InvalidSettings) as raised:
        load_settings({}, config=file)
    assert says.format(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_or_unreadable_file_is_an_error(tmp_path):
    with pytest.raises(InvalidSettings, match="there is no configuration file"):
        load_settings({}, config=tmp_path / "nothing.yaml")
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load_settings({}, config=tmp_path)


def test_error_names_the_environment_variable_or_flag(monkeypatch):
    monkeypatch.setenv("SLUICE_API_ADDRESS", "nowhere")
    with pytest.raises(InvalidSettings, match="the environment variable SLUICE_API_ADDRESS: "):
        load_settings({})
    with pytest.raises(InvalidSettings, match="--api-address: "):
        load_settings({"api_address": "nowhere"})


@pytest.mark.parametrize("token", ["two words", "ümlaut", "line\nbreak"])
def test_token_invalid_in_a_header_is_refused_and_not_printed(monkeypatch, token):
    monkeypatch.setenv("SLUICE_ADMIN_TOKEN", token)
    with pytest.raises(InvalidSettings) as raised:
        load_settings({})
    assert "SLUICE_ADMIN_TOKEN" in str(raised.value)
    assert token not in str(raised.value)


def test_repr_of_settings_does_not_contain_the_token(monkeypatch):
    monkeypatch.setenv("SLUICE_ADMIN_TOKEN", "geheim")
    settings = load_settings({})
    assert "geheim" not in repr(settings)
    assert settings.admin_token is not None
    assert settings.admin_token.get_secret_value() == "geheim"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        (":9443", ("0.0.0.0", 9443)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_address_is_split_into_host_and_port(text, expected):
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", ":", "a", "a:b", "a:-1", "a:65536", "::1", "a:²"])
def test_invalid_address_is_refused(text):
    with pytest.raises(ValueError, match="is not an address"):
        split_address(text)


def test_every_setting_has_a_description_for_help():
    assert all(field.description for field in Settings.model_fields.values())


def test_webhook_ca_requires_webhook_process_to_be_false(tmp_path):
    settings = load_settings({"webhook_ca": str(tmp_path / "ca.crt")})
    with pytest.raises(InvalidSettings, match="set webhookProcess to false, or leave webhookCa out"):
        OwnCertificates(settings, Client.in_cluster())


OIDC = "oidc: {issuerUrl: https://accounts.example.com, clientId: sluice, url: https://sluice.example.com"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", ("https://accounts.example.com#", "sub")),
        (", usernameClaim: email", ("", "email")),
        (", usernameClaim: name", ("https://accounts.example.com#", "name")),
        (", usernameClaim: name, usernamePrefix: '-'", ("", "name")),
        (", usernameClaim: email, usernamePrefix: 'oidc:'", ("oidc:", "email")),
    ],
)
def test_oidc_username_prefix_has_the_defaults_of_the_api_server(config, more, expected):
    oidc = load_settings({}, config=config(OIDC + more + "}")).oidc
    assert oidc is not None
    assert (oidc.client().username_prefix, oidc.client().username_claim) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("oidc: {issuerUrl: https://a.example, url: https://b.example}", "oidc.clientId"),
        (OIDC.replace("https://acc", "http://acc") + "}", "oidc.issuerUrl in .*not an https URL"),
        (OIDC.replace("https://sl", "http://sl") + "}", "oidc.url in .*http only on loopback"),
        (OIDC.replace("sluice.example.com", "sluice.example.com/ui/") + "}", "oidc.url in .*https://HOST"),
        (OIDC + ", clientSecret: s3cret}", "oidc.clientSecret in .*"),
        (OIDC + ", signingAlgorithms: [none]}", r"oidc.signingAlgorithms\[0\]"),
        (OIDC + ", signingAlgorithms: [HS256]}", r"oidc.signingAlgorithms\[0\]"),
        (OIDC + ", signingAlgorithms: []}", "oidc.signingAlgorithms"),
        (OIDC + ", sessionDuration: 9h}", "oidc.sessionDuration in .*must be from 1m to 8h"),
    ],
)
def test_invalid_oidc_setting_is_reported_with_its_path(config, text, said):
    with pytest.raises(InvalidSettings, match=said) as caught:
        load_settings({}, config=config(text))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("requestHeader: {clientCaFile: ca.crt}", "requestHeader.allowedNames"),
        ("requestHeader: {clientCaFile: ca.crt, allowedNames: []}", "requestHeader.allowedNames"),
        ("requestHeader: {allowedNames: [a]}", "requestHeader.clientCaFile"),
        (
            "requestHeader: {clientCaFile: a, allowedNames: [a], usernameHeaders: ['a b']}",
            "requestHeader.usernameHeaders",
        ),
        ("requestHeader: {clientCaFile: a, allowedNames: [a], usernameHeaders: []}", "requestHeader.usernameHeaders"),
    ],
)
def test_invalid_request_header_setting_is_reported_with_its_path(config, text, said):
    with pytest.raises(InvalidSettings, match=said):
        load_settings({}, config=config(text))


def test_request_header_proxy_enables_tls_on_loopback(config):
    assert not has_tls(load_settings({}))
    assert has_tls(load_settings({}, config=config("requestHeader: {clientCaFile: ca.crt, allowedNames: [a]}")))
