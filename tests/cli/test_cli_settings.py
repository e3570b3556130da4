"""Settings: which source wins, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.cli.errors import InvalidSettings
from admission.cli.settings import Settings, load_settings, split_address


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "sluice.yaml"

    def write(text: str) -> Path:
        path.write_text(text)
        return path

    return write


def test_defaults_need_nothing():
    settings = load_settings({"kubeconfig": None})
    assert settings.database_url == "sqlite:///sluice.db"
    assert settings.api_address == "127.0.0.1:8080"
    assert settings.accept_kueue_labels
    assert settings.admin_token is None


def test_a_flag_wins_over_the_environment_and_that_over_the_file_and_that_over_the_default(config, monkeypatch):
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
    # One file's content is not left behind for the next.
    assert load_settings({}).api_address == "127.0.0.1:8080"


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("0", False), ("no", False), ("1", True)])
def test_switches_in_the_environment(monkeypatch, text, expected):
    monkeypatch.setenv("SLUICE_ACCEPT_KUEUE_LABELS", text)
    assert load_settings({}).accept_kueue_labels is expected


def test_an_empty_file_and_an_empty_variable_say_nothing(config, monkeypatch):
    monkeypatch.setenv("SLUICE_API_ADDRESS", "")
    assert load_settings({}, config=config("# nothing yet\n")).api_address == "127.0.0.1:8080"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("databaseurl: x", '"databaseurl" in {} is no setting; did you mean "databaseUrl"?'),
        ("database-url: x", '"database-url" in {} is no setting; did you mean "databaseUrl"?'),
        ("database_url: x", '"database_url" in {} is no setting; did you mean "databaseUrl"?'),
        ("colour: blue", '"colour" in {} is no setting; known are kubeconfig, '),
        ("databaseUrl: 3", "databaseUrl in {}: "),
        ("acceptKueueLabels: perhaps", "acceptKueueLabels in {}: "),
        ("logLevel: loud", "logLevel in {}: "),
        ("apiAddress: 8080", "apiAddress in {}: "),
        ("apiAddress: '8080'", 'apiAddress in {}: "8080" is no address; expected HOST:PORT'),
        ("webhookUrl: http://a", 'webhookUrl in {}: "http://a" is no https://HOST:PORT'),
        ("webhookUrl: https://:9443", "webhookUrl in {}: "),
        ("webhookUrl: 'https://[::'", "webhookUrl in {}: "),
        ("webhookService: sluice-webhook", 'webhookService in {}: "sluice-webhook" is no NAMESPACE/NAME'),
        ("kind: ClusterQueue", "kind in {} must be Configuration"),
        ("apiVersion: v1", "apiVersion in {} must be sluice.dev/v1"),
        ("a: [", "the configuration file {}: line 2"),
        ("- a", "the configuration file {}: "),
        ("logLevel: info\nlogLevel: debug", "given twice"),
        ("logLevel: info\n---\nlogLevel: debug", "{} holds 2 documents"),
    ],
)
def test_a_wrong_file_is_a_sentence_with_key_and_file(config, text, says):
    file = config(text)
    with pytest.raises(InvalidSettings) as raised:
        load_settings({}, config=file)
    assert says.format(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(InvalidSettings, match="there is no configuration file"):
        load_settings({}, config=tmp_path / "nothing.yaml")
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load_settings({}, config=tmp_path)


def test_each_source_is_named_as_the_user_knows_it(monkeypatch):
    monkeypatch.setenv("SLUICE_API_ADDRESS", "nowhere")
    with pytest.raises(InvalidSettings, match="the environment variable SLUICE_API_ADDRESS: "):
        load_settings({})
    with pytest.raises(InvalidSettings, match="--api-address: "):
        load_settings({"api_address": "nowhere"})


@pytest.mark.parametrize("token", ["two words", "ümlaut", "line\nbreak"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(monkeypatch, token):
    monkeypatch.setenv("SLUICE_ADMIN_TOKEN", token)
    with pytest.raises(InvalidSettings) as raised:
        load_settings({})
    assert "SLUICE_ADMIN_TOKEN" in str(raised.value)
    assert token not in str(raised.value)


def test_the_token_is_not_shown(monkeypatch):
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
def test_addresses(text, expected):
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", ":", "a", "a:b", "a:-1", "a:65536", "::1", "a:²"])
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match="is no address"):
        split_address(text)


def test_every_setting_has_a_description_for_help():
    assert all(field.description for field in Settings.model_fields.values())
