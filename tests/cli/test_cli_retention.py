"""The setting `retention`, from the file to the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission.cli.configuration.settings import load_settings
from admission.cli.errors import InvalidSettings
from admission.store.retention import Retention

DAY = 86400.0


def test_retention_defaults_to_90_days_for_finished_and_a_year_for_audit(tmp_path: Path):
    assert load_settings({}).retention.policy() == Retention(finished=90 * DAY, audit=365 * DAY)
    config = tmp_path / "sluice.yaml"
    config.write_text("retention: {finished: 36h}\n")
    assert load_settings({}, config=config).retention.policy() == Retention(finished=1.5 * DAY, audit=365 * DAY)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("retention: {finished: forever}", r'retention\.finished in .*: "forever" is not a duration'),
        ("retention: {workloads: 1d}", r"retention\.workloads in "),
    ],
)
def test_invalid_retention_names_the_field(tmp_path: Path, text: str, message: str):
    config = tmp_path / "sluice.yaml"
    config.write_text(text)
    with pytest.raises(InvalidSettings, match=message):
        load_settings({}, config=config)
