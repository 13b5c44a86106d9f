"""The models that AI Hub offers already compiled, as listed in the wheel qai-hub-models.

Nothing is imported from the wheel.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from fleet.config.yamlpos import read
from fleet.model.errors import InputError
from fleet.model.extras import installer

WHEEL = "qai-hub-models"
# Runtime of AI Hub → runner of fleet. voice_ai is a separate SDK, which fleet does not start.
RUNNERS = {"genie": "genie", "geniex_qairt": "geniex", "geniex_llamacpp": "geniex"}


def wheel() -> tuple[Path, str]:
    """Return the folder of the installed wheel and its version. Raises InputError if the wheel is
    not installed.
    """
    from importlib import metadata  # noqa: PLC0415 - mail and zip files

    try:
        package = metadata.distribution(WHEEL)
    except metadata.PackageNotFoundError:
        raise InputError(
            f"AI Hub's figures are in the Python package {WHEEL}, which is not installed",
            hint=shlex.join([*installer(), "--no-deps", WHEEL])
            + " (7 MB; the packages that it needs for other things are left out)",
        ) from None
    return Path(str(package.locate_file("qai_hub_models"))), package.version


def offered(name: str) -> InputError:
    """Return the error for the name of a model in place of the id of a job.

    The error lists the runtimes for which AI Hub offers the model.
    """
    support, fetch = "", f"qai-hub-models fetch {name} --help"
    try:
        folder, version = wheel()
        manifest = read(folder / "models" / name / "manifest.yaml", InputError).data
    except InputError:
        manifest, version = {}, ""
    runtimes = manifest.get("orchestrator_runtimes", [])
    if runtimes:
        words = [f"{each}: {f'runner {RUNNERS[each]}' if RUNNERS.get(each) else 'none yet'}"
                 for each in runtimes]  # fmt: skip
        support = f" (qai-hub-models {version}; fleet runs it with: {', '.join(words)})"
    runs = next((each for each in runtimes if RUNNERS.get(each)), "")
    of_gguf = runs == "geniex_llamacpp"
    fits = [each for each in manifest.get("supported_precisions", [])
            if each.startswith("w") is not of_gguf]  # fmt: skip
    if runs and fits:
        fetch = f"qai-hub-models fetch {name} --runtime {runs} --precision {fits[0]}"
    hint = (
        f"{fetch} (of the Python package qai-hub-models-cli; --chipset chooses the chip), then "
        "fleet bundle inspect DIR"
    )
    return InputError(
        f"'{name}' is not a job of yours, but a model; what AI Hub offers compiled comes by its "
        f"own program{support}",
        hint=hint if runs or not runtimes else "fleet config runners (lists what fleet runs)",
    )
