"""What is to be done about a run that is not valid."""

from __future__ import annotations

from fleet.engine.run.measuring.validity import cure_of, lasting
from fleet.runners.ort import _STATUS


def test_inputs_that_do_not_match_are_cured_in_the_playbook_and_stay_wrong() -> None:
    """`next:` led to the doctor, which knows nothing of inputs."""
    problem = f"{_STATUS[10]}: nothing gives the decoder's input encoder_hidden_states.1"
    cure = cure_of(problem, "pc-01", "playbook.yaml")
    assert cure == "add or correct these inputs under `run: options:` in playbook.yaml"
    assert lasting(problem)
    assert "fleet doctor --limit pc-01" in cure_of("failed: status 3", "pc-01")
