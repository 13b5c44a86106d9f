"""The boundary to the client `qai-hub`: its calls, and its exceptions as fleet's errors.

No error message contains a secret such as the API token or a signed address.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from fleet.model.errors import AiHubError, FleetError, InputError, reason
from fleet.model.extras import install_extra

Message = Any  # of qai_hub.public_api_pb2, which may not be installed
_MAX_WORDS = 300
_CONFIGURE = (
    "qai-hub configure --api_token TOKEN (copy the token from the account page of AI "
    "Hub); or set QAIHUB_CLIENT_INI to the path of a client.ini"
)
# At DEBUG and INFO these loggers write signed addresses, which give anybody access to the file.
_TALKERS = ("urllib3", "LogRetry", "botocore", "s3transfer", "backoff")
_NETWORK = ("requests", "urllib3", "botocore", "s3transfer")


class Hub:
    """AI Hub as the user's client is configured (`~/.qai_hub/client.ini`, QAIHUB_CLIENT_INI).

    All calls have the deadlines and retries of the client: 3 s to connect, 28 s until the next byte
    (4 s in a download), and six more attempts. A call raises AiHubError if it fails, and InputError
    for an id that AI Hub does not know.
    """

    def __init__(self) -> None:
        try:
            import qai_hub  # noqa: PLC0415
            from qai_hub import api_utils, public_api_pb2, public_rest_api  # noqa: PLC0415
        except ImportError:
            raise AiHubError(
                "fleet needs the Python package qai-hub to access AI Hub, but it is not installed",
                hint=install_extra("aihub"),
            ) from None
        self._client = qai_hub
        self._api = public_rest_api
        self._messages = public_api_pb2
        self._path = str(api_utils.get_config_path())
        self._config = self._configured()

    def __repr__(self) -> str:
        return "Hub()"

    @property
    def client_version(self) -> str:
        """The version of the package qai-hub, such as `0.56.0`."""
        return str(self._client.__version__)

    def state_of(self, number: int) -> str:
        """Return the name of a job's state: `done`, `failed`, `created`, `optimizing_model`, ...

        A state that this client does not know is `unspecified`.
        """
        return self._word("JobState", number)

    def model_type_of(self, number: int) -> str:
        """Return the type of a model: `qnn_context_binary`, `onnx`, `qnn_dlc`, `tflite`, ..."""
        return self._word("ModelType", number)

    def metadata_of(self, model: Message) -> dict[str, str]:
        """Return the metadata of a model by key (`qairt_sdk_version`, `qnn_context_bin_soc_model`).

        Keys that this client does not know are dropped.
        """
        entries = {
            self._word("ModelMetadataKey", key): value
            for key, value in model.metadata.entries.items()
        }
        entries.pop("unspecified", None)
        return entries

    def job(self, job_id: str) -> Message:
        """Return a job as the client's message `Job`."""
        return self._call(f"job {job_id}", lambda: self._api.get_job(self._config, job_id))

    def job_result(self, job_id: str) -> Message:
        """Return the result of a job as the client's message `JobResult`."""
        return self._call(
            f"the result of job {job_id}", lambda: self._api.get_job_results(self._config, job_id)
        )

    def model(self, model_id: str) -> Message:
        """Return a model as the client's message `Model`."""
        return self._call(f"model {model_id}", lambda: self._api.get_model(self._config, model_id))

    def device(self, name: str, os: str) -> Message | None:
        """Return the device of this name, or None if AI Hub no longer has it."""
        answer = self._call(
            f"device {name}", lambda: self._api.get_device_list(self._config, name, os)
        )
        return next((device for device in answer.devices if device.name == name), None)

    def download(self, model_id: str, folder: Path, verbose: bool) -> Path:
        """Download the file of a model into `folder` and return its path.

        The file is called `model` and has the suffix of its name on AI Hub. If the connection
        breaks, the client starts again from the first byte, up to six times. If `verbose` is True,
        the client prints its progress on standard error. The client's temporary file is in `folder`
        too, so only the disk of the bundle needs space.
        """
        with _temporary_files_in(folder):
            path = self._call(
                f"the download of model {model_id}",
                lambda: self._api.download_model(
                    self._config, model_id, str(folder / "model"), verbose=verbose
                ),
            )
        return Path(path)

    def clean(self, text: str) -> str:
        """Return a text of AI Hub without the token, on one line, cut after `_MAX_WORDS`
        characters.
        """
        token = str(self._config.api_token)
        words = " ".join((text.replace(token, "***") if token else text).split())
        return words if len(words) <= _MAX_WORDS else f"{words[:_MAX_WORDS]} ..."

    def _configured(self) -> Message:
        problem: AiHubError
        try:
            config = self._client.Client().config
        except Exception as error:  # noqa: BLE001 - its text may quote the token
            why = "is not configured" if _not_found(error) else "is configured wrongly"
            problem = AiHubError(
                f"the client of AI Hub {why}: {self._path} must have a section [api] "
                "with api_url, web_url and api_token",
                hint=_CONFIGURE,
            )
        else:
            if str(config.api_token).strip():
                return config
            problem = AiHubError("the AI Hub client has an empty api_token", hint=_CONFIGURE)
        raise problem

    def _call(self, what: str, function: Callable[[], Message]) -> Message:
        """Return `function()`. Raises AiHubError or InputError about `what`, the subject of the
        call.

        The client's exceptions contain addresses and headers, so they are not chained.
        """
        try:
            with _silent():
                return function()
        except Exception as error:  # noqa: BLE001 - the isolation border
            problem = self._problem(error, what)
        raise problem

    def _problem(self, error: Exception, what: str) -> FleetError:
        status = _status(error)
        if status is not None:
            url = str(getattr(error, "url", None) or "")
            of_hub = url.startswith(urljoin(str(self._config.api_url), "api/"))
            return self._refusal(status, str(error) if of_hub else "", what)
        if isinstance(error, OSError) and error.errno is not None and not _of_network(error):
            return AiHubError(
                f"fleet cannot write {what} to the disk of this workstation: {reason(error)}",
                hint="free some disk space, or name a folder on another disk: -o FOLDER",
            )
        if _of_network(error):
            return AiHubError(
                f"the connection to AI Hub broke while fleet asked for {what}: "
                f"{type(error).__name__}",
                hint="check the network, the proxy and `api_url` in client.ini; then run the "
                "command again",
            )
        return AiHubError(
            f"the Python package qai-hub failed while fleet asked for {what}: "
            f"{type(error).__name__}",
            hint="pip install --upgrade qai-hub",
        )

    def _refusal(self, status: int, text: str, what: str) -> FleetError:
        """Return the error for an HTTP status. `text` is the answer of AI Hub itself.

        `text` is "" if a storage server answered, because its words are not quoted.
        """
        answer = self._answer(text)
        if status == 404:
            return InputError(
                f"AI Hub cannot find {what}, or your account has no access to it",
                hint="check the id, or ask the owner of the job or model to share it with your "
                "account",
            )
        wrong = 400 <= status < 500
        verb = "refuses" if wrong else "has a problem with"
        message, hint = {
            401: ("AI Hub refuses the API token (401)", _CONFIGURE),
            403: (
                f"AI Hub gives this account no access to {what} (403){answer}",
                (
                    "ask the owner of the job or model to share it with your account; then run "
                    "the command again"
                ),
            ),
            426: (
                (f"the package qai-hub {self.client_version} is too old for AI Hub (426)"),
                "pip install --upgrade qai-hub",
            ),
            429: (
                "AI Hub received too many requests from your account (HTTP status 429)",
                "wait some minutes, then run the command again",
            ),
        }.get(
            status,
            (
                f"AI Hub {verb} {what} (HTTP status {status}){answer}",
                "check the id: the page of the job on the AI Hub web site shows it"
                if wrong
                else "wait some minutes, then run the command again",
            ),
        )
        return AiHubError(message, hint=hint)

    def _answer(self, text: str) -> str:
        try:
            text = str(json.loads(text)["detail"])
        except (ValueError, KeyError, TypeError):
            if "<" in text or "{" in text:  # HTML or JSON, which a user cannot read
                return ""
        return f": {self.clean(text)}" if text.strip() else ""

    def _word(self, enum: str, number: int) -> str:
        kind = getattr(self._messages, enum)
        prefix = next(iter(kind.keys())).removesuffix("UNSPECIFIED")
        names = {value: name for name, value in kind.items()}
        return str(names.get(number, f"{prefix}UNSPECIFIED")).removeprefix(prefix).lower()


def _not_found(error: BaseException) -> bool:
    chain = (error, error.__cause__, error.__context__)
    return any(isinstance(link, FileNotFoundError) for link in chain)


def _status(error: BaseException) -> int | None:
    """Return the HTTP status in an exception of the client, of requests' retries, or of S3, or
    None.
    """
    status = getattr(error, "status_code", None)
    if status is None and type(error).__name__ == "RetryError":
        match = re.search(r"too many (\d{3}) error responses", str(error))
        status = match[1] if match else None
    if status is None and isinstance(answer := getattr(error, "response", None), dict):
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return int(status) if status is not None else None


def _of_network(error: BaseException) -> bool:
    kinds = type(error).__mro__
    return any(kind.__module__.split(".")[0] in _NETWORK for kind in kinds) or isinstance(
        error, ConnectionError | TimeoutError
    )


@contextmanager
def _silent() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _TALKERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    before = tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
