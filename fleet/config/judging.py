"""Single keys of an inventory as `hostvars` has them: for what is not plainly right."""

from __future__ import annotations

from pydantic import ValidationError

from fleet.config.hostvars import GroupVars, HostVars
from fleet.config.problems import Problems
from fleet.config.reports import report
from fleet.config.yamlpos import Document, Keys


def host_key(
    document: Document, problems: Problems, name: str, value: object, path: Keys
) -> tuple[object] | None:
    """The value of a field of HostVars; None with the errors reported at `path`."""
    try:
        model = HostVars.model_validate({name: value})
    except ValidationError as error:
        report(error, HostVars, document, problems, base=path, skip=1)
        return None
    return (getattr(model, name),)


def group_priority(document: Document, problems: Problems, value: object, path: Keys) -> int | None:
    """`ansible_group_priority` of a group; None with the errors reported at `path`."""
    try:
        return GroupVars.model_validate({"ansible_group_priority": value}).ansible_group_priority
    except ValidationError as error:
        report(error, GroupVars, document, problems, base=path, skip=1)
        return None
