"""`sluice config`: the example file, checks of a file, and the effective settings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_runner import Sluice
from pydantic.alias_generators import to_camel

from admission.cli.configuration.settings import Settings, load_settings

sluice = Sluice()


def test_example_file_lists_every_setting_and_changes_no_default(tmp_path: Path):
    printed = sluice.run("config", "example").output
    file = tmp_path / "sluice.yaml"
    file.write_text(printed)
    assert load_settings({}, config=file).model_dump() == load_settings({}).model_dump()
    missing = [name for name in Settings.model_fields if f"\n# {to_camel(name)}:" not in printed]
    assert missing == ["admin_token"], "it is a secret, which belongs into no file of settings"
    assert "[--database-url-file, SLUICE_DATABASE_URL_FILE]" in printed
    assert (
        "##   usageHalfLifeTime: Time after which past usage counts half; 0s: past usage does not count. Required."
        in printed
    )


@pytest.mark.costly
def test_each_setting_of_the_example_file_is_valid_when_uncommented(tmp_path: Path):
    """Users uncomment the settings that they want to change."""
    blocks = sluice.run("config", "example").output.split("\n\n")[1:]
    for block in blocks:
        settings = [line.removeprefix("# ") for line in block.splitlines() if not line.startswith("##")]
        (tmp_path / "sluice.yaml").write_text("\n".join(settings))
        done = sluice.run("config", "check", str(tmp_path / "sluice.yaml"))
        assert done.exit_code == 0, (block, done.output)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("apiVersion: sluice.dev/v1\nkind: Configuration\nlogLevel: loud\n", 3),
        ("logLevel: info\nwaitForPodsReady:\n  timeout: 30m\n  requeuingStrategy:\n    timestamp: Now\n", 5),
        ("resources:\n  transformations:\n  - input: a\n  - input: b\n    strategy: Kill\n", 5),
        ("retention: {finished: soon}\n", 1),
        ("\nlogLevle: info\n", 2),
        ("usageMetrics:\n  metricsApi: true\n  idleAfter: 2h\n", 1),
        ("usageMetrics:\n  metricsApi: true\n  idleAfter: 2h\n  idleResources: [cpu, nvidia.com/gpu]\n", 4),
        ('{"logLevel": "info",\n "apiAddress": "8080"}', 2),
    ],
)
def test_invalid_setting_is_reported_with_file_and_line(text: str, line: int, tmp_path: Path):
    file = tmp_path / "sluice.yaml"
    file.write_text(text)
    done = sluice.run("config", "check", str(file))
    assert done.exit_code == 1
    assert f" in {file}:{line}" in done.output
    assert done.output.count("\n") == 1


def test_all_invalid_settings_are_reported_at_once(tmp_path: Path):
    file = tmp_path / "sluice.yaml"
    file.write_text("logLevel: loud\napiAddress: '8080'\n")
    done = sluice.run("config", "check", str(file))
    assert [f"{file}:{line}" in done.output for line in (1, 2)] == [True, True]


def test_missing_file_is_named_whether_from_argument_flag_or_environment(tmp_path: Path):
    file = tmp_path / "none.yaml"
    sentence = f"error: there is no configuration file {file}; correct the path, or create a file with "
    for arguments, environment in (
        (("check", str(file)), {}), (("show", f"--config={file}"), {}), (("show",), {"SLUICE_CONFIG": str(file)}),
    ):  # fmt: skip
        done = sluice.run("config", *arguments, **environment)
        assert (done.exit_code, done.output) == (1, sentence + "`sluice config example`\n")


def test_check_names_the_place_of_an_invalid_database_url(tmp_path: Path):
    file = tmp_path / "sluice.yaml"
    file.write_text("logLevel: debug\ndatabaseUrl: mysql://sluice:s3cret@db/sluice\n")
    message = "the database URL begins with 'mysql'; give sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME"
    done = sluice.run("config", "check", str(file))
    assert (done.exit_code, done.output) == (1, f"error: databaseUrl in {file}:2: {message}\n")
    done = sluice.run("config", "check", str(file), SLUICE_DATABASE_URL="mysql://sluice:s3cret@db/sluice")
    assert (done.exit_code, done.output) == (1, f"error: databaseUrl in SLUICE_DATABASE_URL: {message}\n")


def test_check_of_a_valid_file_prints_the_number_of_settings(tmp_path: Path):
    file = tmp_path / "sluice.yaml"
    file.write_text("logLevel: debug\ndatabaseUrlFile: /not/here\n")
    done = sluice.run("config", "check", str(file))
    assert (done.exit_code, done.output) == (0, f"{file}: 2 settings, all valid\n")


def test_show_prints_effective_settings_and_sources_without_secrets(tmp_path: Path):
    file = tmp_path / "sluice.yaml"
    file.write_text("logLevel: debug\nretention:\n  audit: 30d\ndatabaseUrl: postgresql://sluice:s3cret@db/sluice\n")
    environment = {"SLUICE_LOG_FORMAT": "json", "SLUICE_ADMIN_TOKEN": "s3cret"}
    done = sluice.run("config", "show", f"--config={file}", "--lease=a/b", "-o", "json", **environment)
    shown = json.loads(done.output)
    assert shown["logLevel"] == {"value": "debug", "from": f"{file}:1"}
    assert shown["retention"] == {"value": {"finished": "7776000s", "audit": "2592000s"}, "from": f"{file}:2"}
    assert shown["lease"] == {"value": "a/b", "from": "--lease"}
    assert shown["logFormat"] == {"value": "json", "from": "SLUICE_LOG_FORMAT"}
    assert shown["adminToken"] == {"value": "(set)", "from": "SLUICE_ADMIN_TOKEN"}
    assert shown["databaseUrl"] == {"value": "postgresql://sluice:***@db/sluice", "from": f"{file}:4"}
    assert shown["apiAddress"] == {"value": "127.0.0.1:8080", "from": "default"}
    table = sluice.run("config", "show", f"--config={file}", **environment).output
    assert "s3cret" not in table
    assert re.search(rf"^logLevel +debug +{re.escape(str(file))}:1$", table, re.MULTILINE)
