"""Fixtures of the samplers' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakenvml.control import FakeNvml


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A healthy idle node of eight H100, for every process that the test starts."""
    fake = FakeNvml(tmp_path / "scenario")
    fake.start("H100")
    for name, text in fake.environment().items():
        monkeypatch.setenv(name, text)
    return fake
