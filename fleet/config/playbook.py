"""Playbook files: strict YAML → Playbook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fleet.config.chat import template_for, template_of_bundle
from fleet.config.gates_file import cool_spec, until_spec
from fleet.config.op_packages import op_package_specs
from fleet.config.playbook_file import (
    BundleBody,
    ChatBody,
    PlaybookFile,
    ProgramBody,
    RunBody,
    RuntimeBody,
    ServeBody,
)
from fleet.config.problems import Problems, near_hint, suggest_or_list, suggestion
from fleet.config.runners import default_runner, facts_of_runner, known_runners
from fleet.config.shape import read_body
from fleet.config.suite_file import suite_use
from fleet.config.system_file import LOGIN, FileBody, RepositoryBody, SystemBody
from fleet.config.trusted import require
from fleet.config.verify_file import tensor_use
from fleet.config.yamlpos import Document, Keys, read
from fleet.device.server.chat import MAX_PROMPT_BYTES
from fleet.model.errors import InputError, PlaybookError, Position, reason
from fleet.model.extras import loaded
from fleet.model.files import FileRef, file_ref
from fleet.model.gates import UntilSpec, fewest
from fleet.model.playbook import (
    DEFAULT_HEALTH_SECONDS,
    DEFAULT_PARALLEL,
    Playbook,
    RunSpec,
    RuntimeSpec,
)
from fleet.model.serve import ProgramArchive, ServeSpec
from fleet.model.suite import SuiteUse
from fleet.model.system import (
    LOADER_CONF,
    UDEV_RULES,
    Repository,
    SystemSpec,
    WantedFile,
    WantedUnit,
)

# `system:` of a playbook → SystemSpec: reads the files, and compares keys with fingerprints.

MAX_FILE_BYTES = 1 << 20

Resolve = Callable[[str, Keys], Path]


def system_spec(
    body: SystemBody | None, fastrpc: str, document: Document, problems: Problems, path: Resolve
) -> SystemSpec:
    """Return the `system:` specification of a playbook; errors go to `problems` with their
    positions.
    """
    loader = _SystemLoadLoader(document, problems, path)
    if body is None:
        return SystemSpec(fastrpc=fastrpc)
    return loader.spec(body, fastrpc)


class _SystemLoadLoader:
    def __init__(self, document: Document, problems: Problems, path: Resolve) -> None:
        self._document, self._problems, self._path = document, problems, path

    def spec(self, body: SystemBody, fastrpc: str) -> SystemSpec:
        self._twice(body)
        return SystemSpec(
            fastrpc=fastrpc,
            repositories=tuple(
                self._repository(repository, ("system", "repositories", index))
                for index, repository in enumerate(body.repositories)
            ),
            packages=tuple(dict.fromkeys(body.packages)),
            debs=self._debs(body.debs),
            groups=tuple(dict.fromkeys(body.groups)),
            members={
                group: tuple("" if user == LOGIN else user for user in users)
                for group, users in body.members.items()
            },
            rules={name: _text(text) for name, text in body.udev.items()},
            units=tuple(WantedUnit(unit.name, unit.enabled, unit.running) for unit in body.units),
            files=tuple(
                self._file(file, ("system", "files", index))
                for index, file in enumerate(body.files)
            ),
            library_paths={name: tuple(paths) for name, paths in body.library_paths.items()},
            distribution_qnn=body.distribution_qnn,
            reboot=body.reboot,
        )

    def _twice(self, body: SystemBody) -> None:
        """Report a path that is listed twice: each deploy would overwrite one content with the
        other.
        """
        paths = {UDEV_RULES + name for name in body.udev} | {
            LOADER_CONF + name for name in body.library_paths
        }
        for index, file in enumerate(body.files):
            if file.path in paths:
                at = self._document.value(("system", "files", index, "path"))
                self._problems.add(f"{file.path} is listed twice", at, "remove one of the two")
            paths.add(file.path)

    def _read(self, text: str, keys: Keys, what: str) -> bytes:
        path, at = self._path(text, keys), self._document.value(keys)
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            self._problems.add(
                f"cannot read the {what} {path}: {reason(error)}",
                at,
                f"correct the path; ls {path.parent} (shows what is there)",
            )
            return b""
        if len(data) > MAX_FILE_BYTES:
            self._problems.add(
                f"the {what} {path} is larger than 1 MB", at, "put large files into the bundle"
            )
        return data

    def _repository(self, body: RepositoryBody, keys: Keys) -> Repository:
        wanted = body.fingerprint.replace(" ", "").upper()
        at = self._document.value((*keys, "fingerprint"))
        data = self._read(body.key, (*keys, "key"), "key file")
        return Repository(
            name=body.name,
            uri=body.uri,
            suite=body.suite,
            components=tuple(body.components),
            key=self._key(data, wanted, at) if data else b"",
            fingerprint=wanted,
        )

    def _key(self, data: bytes, wanted: str, at: Position) -> bytes:
        """Return the certificate with the wanted fingerprint in ASCII armour, or b"" after
        reporting an error.
        """
        pysequoia = loaded("pysequoia", "openpgp", "the key of a package repository")
        try:
            certs = pysequoia.Cert.split_bytes(data)
        except Exception as error:  # noqa: BLE001 - the library raises bare exceptions
            why = str(error).splitlines()[0]
            self._problems.add(f"the file is not an OpenPGP key: {why}", at, "gpg --show-keys FILE")
            return b""
        keys = {cert.fingerprint.upper(): cert for cert in certs}
        if wanted not in keys:
            there = ", ".join(keys) or "no key"
            self._problems.add(
                f"the key file of the package repository contains the key {there}, but "
                f"`fingerprint:` is {wanted}",
                at,
                "look up the fingerprint that the owner of the repository publishes; then "
                "correct `fingerprint:`, or get the right key file",
            )
            return b""
        return str(keys[wanted]).encode()

    def _debs(self, text: str | None) -> tuple[FileRef, ...]:
        if text is None:
            return ()
        keys: Keys = ("system", "debs")
        folder, at = self._path(text, keys), self._document.value(keys)
        files = sorted(folder.glob("*.deb")) if folder.is_dir() else []
        if not files:
            self._problems.add(f"the folder {folder} contains no .deb file", at, f"ls {folder}")
        for deb in files:
            if deb.name.count("_") != 2:
                self._problems.add(
                    f"the file name {deb.name} does not have the form name_version_arch.deb",
                    at,
                    f"dpkg-name {deb}",
                )
        return tuple(file_ref(deb.resolve(), deb.name) for deb in files)

    def _file(self, body: FileBody, keys: Keys) -> WantedFile:
        content = b""
        if (body.content is None) == (body.source is None):
            self._problems.add(
                f"the file {body.path} needs either content or source",
                self._document.value(keys),
                "write `content: |` with text, or `source: FILE`",
            )
        elif body.content is not None:
            content = _text(body.content).encode()
        elif body.source is not None:
            content = self._read(body.source, (*keys, "source"), "file")
        mode = body.mode.rjust(4, "0")
        return WantedFile(body.path, content, mode, body.owner, body.group)


def _text(text: str) -> str:
    """Return the text with a final line end, because udev and ld.so.conf may ignore a last line
    without it.
    """
    return text if text.endswith("\n") else text + "\n"


_BUNDLE_MARK = "genie_config.json"
_MARK = "fleet-question"  # stands for the question when a template is only inspected
_LLAMA3_HEADER = "<|end_header_id|>"


def load_playbook(path: Path) -> Playbook:
    """Return the playbook in a file. Relative paths in it start from the file's folder.

    Raises PlaybookError if other users can change the file. Also raises it for the first error in
    the file, with file, line and column.
    """
    require(path, PlaybookError)
    problems = Problems(PlaybookError)
    playbook = _read(read(path, PlaybookError, problems), problems)
    problems.raise_first()
    return playbook


def playbook_errors(path: Path) -> tuple[InputError, ...]:
    """Return all errors of a playbook.

    The files that a playbook names are checked only if its keys are right.
    """
    problems = Problems(PlaybookError)
    try:
        _read(read(path, PlaybookError, problems), problems)
    except PlaybookError as error:
        return problems.errors or (error,)
    return problems.errors


def _read(document: Document, problems: Problems) -> Playbook:
    body = read_body(PlaybookFile, document, problems)
    return _Loader(document, problems).playbook(body)


class _Loader:
    """The checks of a playbook beyond its shape: files, folders and texts."""

    def __init__(self, document: Document, problems: Problems) -> None:
        self._document, self._problems = document, problems
        self._folder = document.file.absolute().parent
        self._warnings: list[str] = []

    def playbook(self, body: PlaybookFile) -> Playbook:
        runtime = body.runtime
        if not isinstance(runtime, RuntimeBody):
            runtime = RuntimeBody(version=runtime)
        kind: str = body.bundle.kind if isinstance(body.bundle, BundleBody) else "genie"
        if body.bundle is None:
            kind = "runtime"
            self._without_bundle(body, runtime)
        bundle = self._bundle(body)
        chosen = self._config(body, kind)
        script = chosen is not None and not chosen.endswith(".json")
        run = self._run(body.run, kind, bundle, script=script) if body.run and body.bundle else None
        health, strategy = body.health, body.strategy
        return Playbook(
            path=self._document.file.absolute(),
            name=body.name,
            bundle=bundle,
            bundle_kind=kind,
            bundle_config=chosen,
            runtime=RuntimeSpec(
                version=None if runtime.version in {"bundle", "none"} else runtime.version,
                none=runtime.version == "none",
                target=None if runtime.target == "auto" else runtime.target,
                wheel=runtime.source == "any",
            ),
            run=run,
            health_timeout=health.timeout if health else DEFAULT_HEALTH_SECONDS,
            parallel=strategy.parallel if strategy else DEFAULT_PARALLEL,
            keep=strategy.keep if strategy else Playbook.keep,
            tune=tuple(strategy.tune) if strategy else (),
            system=system_spec(
                body.system, body.fastrpc, self._document, self._problems, self._path
            ),
            warnings=tuple(self._warnings),
            op_packages=op_package_specs(
                body.op_packages, self._document, self._problems, self._path
            ),
            rollout=body.rollout.spec() if body.rollout else None,
            serve=self._serve(body.serve, bundle) if body.serve else None,
            suite=self._suite(body, bundle),
            verify=tensor_use(body.verify, self._document, self._problems) if body.verify else None,
        )

    def _suite(self, body: PlaybookFile, bundle: Path) -> SuiteUse | None:
        """Return the suite, or None. An error inside the suite is reported at its position in the
        suite file.
        """
        if body.suite is None or not bundle.is_dir():
            return None
        chat = body.run.chat if body.run else None
        template = chat.template if chat else None
        if template is not None and template.endswith(".jinja"):
            template = str(self._path(template, ("run", "chat", "template")))
        try:
            return suite_use(body.suite, self._document, bundle, template)
        except InputError as error:
            self._problems.take(error, self._document.value(("suite",)))
            return None

    def _path(self, text: str, keys: Keys) -> Path:
        try:
            return self._folder / Path(text).expanduser()
        except RuntimeError:
            self._problems.add(
                f"'{text}' names a user that does not exist on this workstation",
                self._document.value(keys),
                "write the whole path, without ~",
            )
            return self._folder / text

    def _without_bundle(self, body: PlaybookFile, runtime: RuntimeBody) -> None:
        """Check a playbook that deploys the runtime alone: no key in it may need a model."""
        if runtime.version == "bundle":
            self._problems.add(
                "the key 'bundle' is missing",
                self._document.value(()),
                'add `bundle: FOLDER`; or `runtime: "2.51.0"`, to deploy the runtime alone',
            )
        for key in ("run", "serve", "op_packages"):
            if getattr(body, key):
                self._problems.add(
                    f"`{key}:` needs a model, but the playbook has no `bundle:`",
                    self._document.key((key,)),
                    f"write `bundle: FOLDER`, or remove `{key}:`",
                )

    def _bundle(self, body: PlaybookFile) -> Path:
        if body.bundle is None:
            return self._folder
        mapping = isinstance(body.bundle, BundleBody)
        keys: Keys = ("bundle", "path") if mapping else ("bundle",)
        text = body.bundle.path if isinstance(body.bundle, BundleBody) else body.bundle
        path = self._path(text, keys)
        if path.is_dir():
            return path.resolve()
        if path.exists():
            message = f"the bundle {path} is a file; it must be a folder"
            hint = f"write {path.parent}" if path.name == _BUNDLE_MARK else "name a folder"
        else:
            message, hint = f"the bundle folder {path} does not exist", _near_bundle(path)
        self._problems.add(message, self._document.value(keys), hint)
        return path

    def _config(self, body: PlaybookFile, kind: str) -> str | None:
        name = body.bundle.config if isinstance(body.bundle, BundleBody) else None
        if name is not None and kind != "genie":
            self._problems.add(
                f"`config:` is for bundles of kind genie, but the kind is {kind}",
                self._document.value(("bundle", "config")),
                "remove `config:`, or correct `kind:`",
            )
        return name

    def _run(self, body: RunBody, kind: str, bundle: Path, *, script: bool) -> RunSpec:
        name = self._runner(body, kind, bundle)
        needed = not script and facts_of_runner(name).lacks_prompt(body.options)
        prompt = self._prompt(body, bundle, needed=needed)
        program, archive = self._program(body.program, "run")
        return RunSpec(
            runner=name,
            prompt=prompt or "",
            max_tokens=body.max_tokens,
            repeats=body.repeats or 1,
            warmups=body.warmups or 0,
            unsaid=tuple(name for name in RunSpec().unsaid if getattr(body, name) is None),
            timeout=body.timeout,
            token_limit_counts=body.token_limit_counts,
            program=program,
            archive=archive,
            libraries=tuple(self._libraries(body)),
            options=body.options,
            cool=cool_spec(body.cool),
            until=self._until(body),
            sustained=body.sustained,
            sample=body.sample,
        )

    def _prompt(self, body: RunBody, bundle: Path, *, needed: bool) -> str | None:
        given = [key for key in ("prompt", "prompt_file", "chat") if getattr(body, key) is not None]
        if len(given) > 1:
            self._problems.add(
                f"`run` has both {given[0]} and {given[1]}",
                self._document.key(("run", given[1])),
                "remove one of the two keys",
            )
        elif needed and not given:
            self._problems.add(
                "`run` has no prompt",
                self._document.key(("run",)),
                "add `prompt: |` with text, `prompt_file:`, or `chat: {user: ...}`",
            )
        elif body.chat is not None:
            return self._chat(body.chat, bundle)
        prompt, keys = body.prompt, ("run", "prompt")
        if body.prompt_file is not None and given == ["prompt_file"]:
            keys = ("run", "prompt_file")
            prompt = self._read_prompt(self._path(body.prompt_file, keys), keys)
        if prompt is not None:
            self._look_at(prompt, keys)
            self._compare_with_template(prompt, bundle, keys)
        return prompt

    def _chat(self, chat: ChatBody, bundle: Path) -> str | None:
        """Return the prompt of `chat:`. An error of the template is reported as an error of the
        playbook.
        """
        messages = [{"role": "system", "content": chat.system}] if chat.system is not None else []
        messages.append({"role": "user", "content": chat.user})
        keys: Keys = ("run", "chat", "template") if chat.template else ("run", "chat")
        try:
            template = template_for(chat.template, self._folder, bundle)
            return template.render(messages, think=chat.think)
        except InputError as error:
            self._problems.add(error.message, self._document.value(keys), error.hint)
            return None

    def _serve(self, serve: ServeBody, bundle: Path) -> ServeSpec:
        """Return the service. Its program belongs to the backend geniex, and to no other."""
        program, archive = self._program(serve.program, "serve")
        if (serve.backend == "geniex") != (program is not None):
            wrong = "needs" if program is None else "is without `backend: geniex`, which needs"
            self._problems.add(
                f"`serve:` {wrong} a `program:`, the program `geniex` of GenieX",
                self._document.key(("serve",)),
                "write `serve: {backend: geniex, program: {archive: URL, sha256: HEX, file: "
                "geniex}}`; see docs/serving.md",
            )
        return serve.spec(self._served(serve, bundle), program, archive)

    def _served(self, serve: ServeBody, bundle: Path) -> dict[str, str] | None:
        """Return the service's chat template in its JSON form, by default the bundle's, or None."""
        given, keys = serve.template, ("serve", "template")
        try:
            if given is not None:
                return template_for(given, self._folder, bundle).for_service()
            own = template_of_bundle(bundle)
            return own.for_service() if own is not None else None
        except InputError as error:
            if given is not None:
                self._problems.add(error.message, self._document.value(keys), error.hint)
            return None

    def _compare_with_template(self, prompt: str, bundle: Path, keys: Keys) -> None:
        """Warn if a hand-written prompt does not contain the end of the model's chat template."""
        try:
            template = template_of_bundle(bundle)
            rendered = template.render([{"role": "user", "content": _MARK}]) if template else ""
        except InputError:
            return  # the user did not ask for this template
        end = rendered.rpartition(_MARK)[2].strip()
        if end and end not in prompt:
            self._warnings.append(
                f"{self._document.value(keys)}: the prompt does not contain {end!r}, the end of "
                "the model's chat template; write `chat: {user: ...}` instead of the prompt"
            )

    def _until(self, body: RunBody) -> UntilSpec | None:
        spec = until_spec(body.until)
        if spec is not None and body.sustained is not None:
            self._problems.add(
                "`run` has both until and sustained",
                self._document.key(("run", "sustained")),
                "remove one of the two keys",
            )
        elif spec is not None and spec.at_most < (body.repeats or 1):
            self._problems.add(
                f"`until` allows {spec.at_most} runs, but `repeats` asks for {body.repeats}",
                self._document.key(("run", "until")),
                f"write `until: {{at_most: {body.repeats}}}`, or fewer repeats",
            )
        elif spec is not None and spec.at_most < fewest(spec.level):
            self._problems.add(
                f"{spec.at_most} runs are too few for the confidence level {spec.level * 100:g}%",
                self._document.key(("run", "until")),
                f"write `until: {{at_most: {fewest(spec.level)}}}`, or a lower level",
            )
        return spec

    def _runner(self, body: RunBody, kind: str, bundle: Path) -> str:
        name = body.runner or default_runner(kind, bundle, body.options)
        known = known_runners()
        if name not in known:
            at = self._document.value(("run", "runner"))
            self._problems.add(f"no runner is called '{name}'", at, suggest_or_list(name, known))
        return name

    def _program(
        self, program: str | ProgramBody | None, section: str
    ) -> tuple[Path | None, ProgramArchive | None]:
        """Return the path of the program, and the archive from which it is unpacked on demand."""
        if program is None:
            return None, None
        keys: Keys = (section, "program")
        if isinstance(program, str):
            path = self._path(program, keys)
            if not path.is_file():
                at = self._document.value(keys)
                self._problems.add(f"the program {path} does not exist", at, near_hint(path))
            return path, None
        text = program.archive
        remote = text.lower().startswith(("https://", "http://"))
        source = Path() if remote else self._path(text, (*keys, "archive"))
        archive = ProgramArchive(text if remote else str(source), program.sha256)
        if not remote and not source.is_file() and not archive.folder.is_dir():
            at = self._document.value((*keys, "archive"))
            self._problems.add(f"the archive {source} does not exist", at, near_hint(source))
        return archive.folder / program.file, archive

    def _libraries(self, body: RunBody) -> Iterator[Path]:
        for index, text in enumerate(body.libraries):
            keys: Keys = ("run", "libraries", index)
            path = self._path(text, keys)
            matches = sorted(path.parent.glob(path.name)) if set(path.name) & set("*?[") else [path]
            if not matches or not all(path.is_file() for path in matches):
                self._problems.add(
                    f"no library matches {path}", self._document.value(keys), f"ls {path.parent}"
                )
            yield from matches

    def _read_prompt(self, path: Path, keys: Keys) -> str | None:
        at = self._document.value(keys)
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_PROMPT_BYTES + 1)
            text = data.decode("utf-8-sig")
        except FileNotFoundError:
            self._problems.add(f"the prompt file {path} does not exist", at, near_hint(path))
            return None
        except OSError as error:
            self._problems.add(
                f"cannot read the prompt file {path}: {reason(error)}", at, near_hint(path)
            )
            return None
        except UnicodeDecodeError:
            self._problems.add(
                f"the prompt file {path} is not UTF-8",
                at,
                f"convert it: iconv -f WINDOWS-1252 -t UTF-8 {path}",
            )
            return None
        if len(data) > MAX_PROMPT_BYTES or "\0" in text:
            why = "is not text: it contains NUL bytes" if "\0" in text else "is larger than 1 MB"
            self._problems.add(
                f"the prompt file {path} {why}",
                at,
                "set `prompt_file:` to the text file with the prompt",
            )
            return None
        return text

    def _look_at(self, prompt: str, keys: Keys) -> None:
        at = self._document.value(keys)
        if not prompt.strip():
            self._problems.add("the prompt is empty", at, "write the text after `prompt: |`")
        if r"\n" in prompt:
            self._warnings.append(
                f"{at}: the prompt contains \\n as two characters, not as a line break;"
                " write real lines below `prompt: |`, or use double quotes"
            )
        if prompt.rstrip("\n").endswith(_LLAMA3_HEADER) and not prompt.endswith("\n\n"):
            self._warnings.append(
                f"{at}: the prompt ends without the empty line that Llama 3 expects after the last "
                f"{_LLAMA3_HEADER}; write `prompt: |+` with an empty line below the text"
            )
        if "\r" in prompt:
            self._warnings.append(
                f"{at}: the prompt has Windows line ends (CR LF); to convert the file: dos2unix"
            )


def _near_bundle(path: Path) -> str:
    """Return a hint for a missing bundle: a similar name, else the bundles in the folder."""
    parent = path.parent
    if not parent.is_dir():
        existing = next(each for each in path.parents if each.is_dir())
        return f"check the path: {existing} has no '{path.relative_to(existing).parts[0]}'"
    folders = sorted(item.name for item in parent.iterdir() if item.is_dir())
    near = suggestion(path.name, folders)
    if near:
        return near
    bundles = [name for name in folders if (parent / name / _BUNDLE_MARK).is_file()]
    listed = ", ".join((bundles or folders)[:10])
    return f"use a folder of {parent}: {listed}" if listed else f"create it: {parent} has no folder"
