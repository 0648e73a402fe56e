from __future__ import annotations

import json

import pytest

from lossmith.lab.comparing.records import Settings, Trial


def test_json_there_and_back() -> None:
    settings = Settings("a.csv", "f1", ("ce", "traced"))
    assert Settings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
    trial = Trial("ce", "", 3, 0.1, True, ((1, 0.5), (2, 0.6)), 2, None, 0.6, 0.5, 0.01, ("odd",))
    assert Trial.from_json(json.loads(json.dumps(trial.to_json()))) == trial


@pytest.mark.parametrize("name", ["num_seeds", "num_trials", "num_steps", "batch_size"])
def test_too_little(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0 came"):
        Settings("a.csv", "f1", ("ce",), **{name: 0})  # type: ignore[arg-type]
