"""A bundle of kind `genie`: its configuration, recognised by content, and every file that it names.

The keys are those that libGenie's own validators and readers accept. These are Dialog.cpp,
Engine.cpp, Embedding.cpp, ImageEncoder.cpp, TextEncoder.cpp, LoraConfig.cpp and ssd-q1.cpp. The
sources come with the SDK as examples/Genie, of QAIRT 2.4x and newer. The layouts are those of
ai-hub-models `llm_helpers.py` and docs.qualcomm.com 80-63442-100 (docs/sources/deployment.md 4).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fleet.bundles.found import SUMS, Found
from fleet.bundles.jsonfile import read_json, read_text
from fleet.bundles.kinds import CONFIG, not_supported
from fleet.bundles.paths import clean_name, inside, name_in
from fleet.bundles.plain import read_bundle
from fleet.model.bundle import Bundle, Engine, MissingFile, NamedFile
from fleet.model.errors import BundleError, Position, reason
from fleet.model.files import file_ref
from fleet.model.home import fleet_home, write_whole

FILE, SHARD, FOLDER, OUTPUT = "file", "context binary", "folder", "output"
# The kind of file behind a key, or behind a parent and its key. A start reads all kinds but OUTPUT.
# The values are strings and lists of strings; a number in place of a name (quant-param) is ignored.
KEYS = {
    "path": FILE,  # tokenizer
    "adapters.path": FOLDER,  # LoRA version 1: TENSOR.raw for each tensor
    "extensions": FILE,
    "lut-path": FILE,
    "dlc-path": FILE,
    "quant-param.scale": FILE,
    "quant-param.offset": FILE,
    "ctx-bins": SHARD,
    "bin-sections": FILE,  # LoRA version 2 and 3; "" skips a shard
    "quant-bin-sections": FILE,
    "metadata-dlc": FILE,
    "model-bin": FILE,
    "draft-token-map": FILE,
    "scoring-network": FILE,
    "forecast-prefix-name": FOLDER,
    "lmhead-weight-dir": FOLDER,
    "checkpoint.model-basedir": FOLDER,
    "model-json-path": FILE,
    "clipping-map-path": FILE,
    "trainable-params-path": FILE,
    "debug.path": OUTPUT,
    "output-dir": OUTPUT,
    "cache-dir": OUTPUT,
}
_IN_FOLDER = {"forecast-prefix-name": "kv-cache.primary.qnn-htp"}  # the file that Genie reads
_MAY_BE_EMPTY = {"bin-sections", "quant-bin-sections"}
_RECORD = "record://"  # a record inside a DLC, not a file
# The sections of a dialog and of the nodes of a pipeline (Node.cpp). A file has one of them.
SECTIONS = (
    *("dialog", "text-generator", "text-encoder", "lut-encoder", "image-encoder", "embedding"),
    *("standalone-engine", "diffuser", "lm-executor"),
)
SCRIPT = "*genie*app*"  # AI Hub: genie-app-script.txt
_CONFIG_BYTES = 1 << 20  # a tokenizer of the same folder has several MB
_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:[/\\]")
_LOOKS_LIKE_A_FILE = re.compile(r"[^\s{}]+\.(bin|raw|json|dlc|so|dll|onnx|gguf)", re.IGNORECASE)
# Small files that fleet sends without a name in a configuration: users expect them on the device.
_COMPANIONS = (
    *("sample_prompt*.txt", "tool-versions.yaml", "metadata.json", "metadata.yaml"),
    *("tokenizer_config.json", "special_tokens_map.json", "generation_config.json"),
    *("chat_template.jinja", "LICENSE*", "NOTICE*", "README*", SUMS),
)
_COMPANION_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Named:
    """A file that the configuration names. `key` is its place, such as `dialog.tokenizer.path`."""

    name: str
    key: str
    kind: str = FILE


@dataclass
class GenieConfig:
    """A Genie configuration. Its `data` has the names of files as the device finds them.

    `resolved` maps the names that were spelled differently to their names in the bundle.
    """

    path: Path
    name: str
    data: dict[str, Any]
    named: list[Named] = field(default_factory=list)
    resolved: dict[str, str] = field(default_factory=dict)
    unknown: list[Named] = field(default_factory=list)


def has_genie_configs(root: Path, name: str = "") -> bool:
    """Return True if a folder has a dialog, a script, or the configuration of a pipeline's node.

    With `name`, only that file counts.
    """
    if name:
        return any(found == name for found, _ in _sections(root))
    return any(True for _ in _sections(root)) or bool(genie_scripts(root))


def _sections(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    names = (path for path in root.glob("*.json") if not path.name.startswith("."))
    for path in sorted(names, key=lambda path: (path.name != CONFIG, path.name)):
        try:
            if not path.is_file() or path.stat().st_size > _CONFIG_BYTES:
                continue
            data = read_json(path)
        except (OSError, BundleError):
            continue
        if any(isinstance(data.get(section), dict) for section in SECTIONS):
            yield path.name, data


def genie_scripts(root: Path) -> list[str]:
    """Return the names of the genie-app scripts at the top of a folder.

    A script is recognised by its name. A text file is also a script if it has a command that
    creates the configuration of a node.
    """
    try:
        paths = sorted(path for path in root.iterdir() if path.suffix != ".json" and path.is_file())
    except OSError:
        return []
    return [path.name for path in paths
            if fnmatchcase(path.name.lower(), SCRIPT) or _has_nodes(path)]  # fmt: skip


def _has_nodes(path: Path) -> bool:
    if path.suffix not in {"", ".txt", ".script"}:
        return False
    try:
        if path.stat().st_size > _CONFIG_BYTES:
            return False
        return any(words[:3] == ["node", "config", "create"] for words in _commands(path))
    except (OSError, BundleError):
        return False


def inspect_genie(root: Path, chosen: str | None, system_library: Path | None, *, hashes: bool) -> (
    Bundle
):  # fmt: skip
    """Return the known facts of a Genie bundle. Raises BundleError.

    `chosen` is the playbook's `config:`. Without `hashes` every sha256 is empty.
    """
    entry = _entry(root, chosen)
    script = entry if not entry.endswith(".json") else None
    configs = _script_configs(root, entry) if script else [read_config(root, entry)]
    main = next((item for item in configs if "text-generator" in item.data), None)
    main = main or configs[0]
    bundle = read_bundle(
        root,
        "genie",
        lambda contents: _collect(configs, script, contents),
        system_library,
        hashes=hashes,
    )
    for config in configs:
        bundle = _with_resolved(bundle, config)
    sent = {file.name: file.source for file in bundle.files}
    opens = [NamedFile(name, f"{config.name}: {item.key}") for config in configs
             for item in config.named for name in _expand(item, root)]  # fmt: skip
    if script:
        opens += [NamedFile(config.name, script) for config in configs]
        opens += [NamedFile(item.name, script) for item in _script_files(root, script)]
    extensions = next((item.name for item in main.named if item.key.endswith(".extensions")), "")
    dialog = _section(main.data)
    context = dialog.get("context")
    size = context.get("size") if isinstance(context, dict) else None
    engines = tuple(_engines(dialog))
    return replace(
        bundle,
        config_name=entry,
        config=main.data if script is None else {},
        backend=deciding_backend(engines),
        engines=engines,
        opens=tuple(item for item in opens if item.name in sent or (root / item.name).is_file()),
        extensions=read_json(sent[extensions]) if extensions in sent else {},
        context_size=size if type(size) is int else None,
        extensions_name=extensions,
        absent=tuple(_absent(main.data)) if script is None else (),
    )


def _entry(root: Path, chosen: str | None) -> str:
    """Return the name of the configuration or the genie-app script with which a run starts.

    Raises BundleError if the folder has no such file, if `chosen` is missing, and if several files
    fit and none was chosen.
    """
    try:
        names = sorted(item.name for item in root.iterdir())
    except OSError as error:
        raise BundleError(
            f"the bundle folder {root} cannot be read: {reason(error)}",
            hint="give the path of the folder that holds genie_config.json",
        ) from error
    scripts, sections = genie_scripts(root), list(_sections(root))
    dialogs = [name for name, data in sections if "dialog" in data]
    nodes = {
        name: next(key for key in SECTIONS if key in data)
        for name, data in sections
        if name not in dialogs
    }
    if chosen is not None:
        if inside(root, clean_name(chosen, "`bundle: config:`"), "`bundle: config:`") is None:
            raise BundleError(
                f"`config:` under `bundle:` is {chosen}, but {root} has no such file",
                hint="set `config:` in the playbook to one of: "
                f"{', '.join([*dialogs, *scripts]) or 'the JSON files of the folder'}",
            )
        return clean_name(chosen, "`bundle: config:`")
    named = [name for name in names if fnmatchcase(name, "*genie_config*.json")]
    named = [name for name in named if name not in nodes]
    if CONFIG in named or len(dialogs) == 1:
        entry = CONFIG if CONFIG in named else dialogs[0]
    elif len(dialogs) > 1:
        raise BundleError(
            f"{root} has more than one Genie configuration: {', '.join(dialogs)}",
            hint=f"choose one in the playbook: bundle: {{path: {root.name}, config: {dialogs[0]}}}",
        )
    elif len(named) == 1 or scripts:
        entry = (scripts or named)[0]
    else:
        raise not_supported(root, names, nodes)
    inside(root, entry, "the bundle")
    return entry


def read_config(root: Path, name: str) -> GenieConfig:
    """Read a Genie configuration of a bundle. Raises BundleError."""
    path = root / name
    data = read_json(path)
    if not any(isinstance(data.get(section), dict) for section in SECTIONS):
        have = ", ".join(sorted(data)) or "nothing"
        raise BundleError(
            f"the Genie configuration has no section `dialog`, and none of a pipeline's node "
            f"(only: {have})",
            position=Position(path, 1, 1),
            hint="use a bundle whose genie_config.json has a `dialog` section, or choose another "
            f"file: bundle: {{path: {root.name}, config: NAME}}",
        )
    config = GenieConfig(path, name, {})
    try:
        config.data = _Reader(root, config).members(data, "")
    except RecursionError as error:
        raise BundleError(
            "the configuration is nested too deeply",
            position=Position(path),
            hint="export the bundle again",
        ) from error
    return config


class _Reader:
    """A reader of one configuration: the data as it goes to the device, and the files that it
    names.
    """

    def __init__(self, root: Path, config: GenieConfig) -> None:
        self._root, self._config = root, config

    def read(self, value: object, where: str) -> object:
        """Return the value with the names of files as they are in the bundle."""
        if isinstance(value, list):
            return [self.read(item, f"{where}[{index}]") for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return self._any(value, where)
        return self.members(value, where)

    def members(self, value: dict[str, Any], where: str) -> dict[str, Any]:
        """Return the object with the names of files as they are in the bundle."""
        return {key: self._member(str(key), item, where) for key, item in value.items()}

    def _member(self, key: str, item: object, where: str) -> object:
        place = f"{where}.{key}" if where else key
        parent = re.sub(r"\[\d+\]$", "", where).rpartition(".")[2]
        kind = KEYS.get(f"{parent}.{key}") or KEYS.get(key)
        if kind is None or (parent == "quant-param" and not isinstance(item, str)):
            return self.read(item, place)
        if kind == OUTPUT:
            return item
        if isinstance(item, list):
            return [self._name(text, key, place, kind) for text in item]
        return self._name(item, key, place, kind)

    def _name(self, text: object, key: str, place: str, kind: str) -> object:
        if text == "" and key in _MAY_BE_EMPTY:
            return text
        if not isinstance(text, str) or not text:
            raise BundleError(
                f"{self._config.name}: {place} must be a file name, not {text!r:.40}",
                hint=f"correct {place} in {self._config.name}",
            )
        if text.startswith(_RECORD):
            return text
        name = name_in(self._root, text)
        if name is None:  # of an absolute path, the file has to be copied into the bundle
            base = re.split(r"[/\\]", text)[-1] if _ABSOLUTE.match(text) else text
            name = clean_name(base, f"{self._config.name} ({place})")
            if base != text:
                self._config.named.append(Named(name, f"{place} ({text})", kind))
                return text
        self._config.named.append(Named(name, place, kind))
        draft = f"draft_{name}"  # an eaglet dialog names one table; its draft has a second table
        if key == "lut-path" and (self._root / draft).is_file():
            self._config.named.append(Named(draft, place, kind))
        return self._spelled(text, name)

    def _any(self, value: object, where: str) -> object:
        """Return a string under an unknown key, with its name in the bundle if it is a file there.

        A string that looks like a file name, but is no file of the bundle, is added to `unknown`.
        """
        if not isinstance(value, str) or not value or len(value) > 1024 or "\n" in value:
            return value
        name = name_in(self._root, value, files_only=True)
        if name is not None:
            self._config.named.append(Named(name, where))
            return self._spelled(value, name)
        if _LOOKS_LIKE_A_FILE.fullmatch(value) and ".lora." not in where:
            self._config.unknown.append(Named(value, where))
        return value

    def _spelled(self, text: str, name: str) -> str:
        """Return the name as written if the device can open it, and the name in the bundle
        otherwise.
        """
        if text.removeprefix("./").rstrip("/").replace("//", "/") == name:
            return text
        self._config.resolved[text] = name
        return name


def _section(data: dict[str, Any]) -> dict[str, Any]:
    return next((data[name] for name in SECTIONS if isinstance(data.get(name), dict)), {})


def _absent(data: dict[str, Any]) -> Iterator[str]:
    """Yield the keys that libGenie requires in a dialog and that this dialog does not have.

    They are those of validateDialogConfig and validateModelBinaryConfig in Dialog.cpp, which are
    equal in three versions of the SDK. The other sections of a configuration are not checked.
    """
    dialog = data.get("dialog")
    if not isinstance(dialog, dict):
        return
    for key in ("type", "context", "tokenizer", "engine"):
        if key not in dialog:
            yield f"dialog.{key}"
    engines = dialog.get("engine")
    for index, engine in enumerate(engines if isinstance(engines, list) else [engines]):
        place = f"dialog.engine[{index}]" if isinstance(engines, list) else "dialog.engine"
        model = engine.get("model") if isinstance(engine, dict) else None
        binary = model.get("binary") if isinstance(model, dict) else None
        if not isinstance(model, dict):
            yield from [f"{place}.model"] if isinstance(engine, dict) else []
        elif isinstance(binary, dict) and binary.get("ctx-bins"):
            continue
        elif isinstance(binary, dict) or model.keys() <= {"version", "positional-encoding"}:
            yield f"{place}.model.binary.ctx-bins"


def _engines(dialog: dict[str, Any]) -> Iterator[Engine]:
    """Yield the engines of a dialog.

    `engine` is one object, or a list of objects (spd, kv-share, eaglet).
    """
    engine = dialog.get("engine")
    for item in engine if isinstance(engine, list) else [engine]:
        if not isinstance(item, dict):
            continue
        role, backend = item.get("role"), item.get("backend")
        text = backend.get("type") if isinstance(backend, dict) else None
        yield Engine(role if isinstance(role, str) else "", text if isinstance(text, str) else None)


def deciding_backend(engines: tuple[Engine, ...]) -> str | None:
    """Return the backend of the engine whose tokens are the answer, None if no engine names one.

    The first backend of the engines with the role target or primary counts; if no engine has such
    a role, the first backend of any engine.
    """
    chosen = [engine for engine in engines if engine.role in {"target", "primary"}] or engines
    return next((engine.backend for engine in chosen if engine.backend), None)


def _script_configs(root: Path, script: str) -> list[GenieConfig]:
    """Return the configurations of the nodes that a genie-app script creates.

    Raises BundleError if it creates no node, or if a file is missing.
    """
    names = [word for words in _commands(root / script) for word in words[3:] if
             words[:3] in (["node", "config", "create"], ["dialog", "config", "create"])
             and word.endswith(".json")]  # fmt: skip
    configs = []
    for text in dict.fromkeys(names):
        name = name_in(root, text, files_only=True)
        if name is None:
            raise BundleError(
                f"{script} uses the configuration {text}, but the bundle does not contain this "
                "file",
                hint=f"copy {text} into {root}, or correct its name in {script}",
            )
        configs.append(read_config(root, name))
    if not configs:
        raise BundleError(
            f"the genie-app script {script} creates no node from a configuration",
            hint=f"choose another file: bundle: {{path: {root.name}, config: NAME}}",
        )
    return configs


def _commands(script: Path) -> Iterator[list[str]]:
    """Yield the words of each command. A line that genie-app could not split is left out."""
    for line in read_text(script).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                yield shlex.split(line.replace("\\", "\\\\"))
            except ValueError:
                continue


def _script_files(root: Path, script: str) -> Iterator[Named]:
    """Yield the data files that a genie-app script reads: images, embeddings, prompts."""
    for words in _commands(root / script):
        for word in words[2:]:
            name = name_in(root, word, files_only=True)
            if name is not None:
                yield Named(name, " ".join(words[:3]))
            elif (
                words[:2] == ["node", "set"]
                and words[2] not in {"text", "textCallback"}
                and word == words[-1]
                and (words[2] == "textFile" or _LOOKS_LIKE_A_FILE.fullmatch(word))
            ):
                yield Named(clean_name(word, script), " ".join(words[:3]))


def _collect(configs: list[GenieConfig], script: str | None, contents: Found) -> list[str]:
    """Fill in paths, missing files and warnings. Return the names of the existing shards."""
    shards: list[str] = []
    entry = script or configs[0].name
    if script:
        contents.paths[script] = contents.root / script
        own = GenieConfig(
            contents.root / script, script, {}, list(_script_files(contents.root, script))
        )
        _add(own, contents, shards)
    for config in configs:
        contents.paths[config.name] = config.path
        _add(config, contents, shards)
    for config in configs:
        _add_nested(config, contents)
        contents.warnings += [
            f"{config.name} names {old}; fleet sends {new} of the bundle and corrects the name"
            for old, new in config.resolved.items()
        ]
        contents.warnings += [
            f"{config.name} names {item.name} under the key {item.key}, which fleet does not "
            "know, and the bundle does not contain this file"
            for item in config.unknown
        ]
    left = []
    for name in _loose(contents.root):
        if any(fnmatchcase(name, pattern) for pattern in _COMPANIONS):
            path = inside(contents.root, name, "the bundle")
            if path is not None and path.stat().st_size <= _COMPANION_BYTES:
                contents.paths.setdefault(name, path)
        elif name not in contents.paths and (contents.root / name).is_file():
            left.append(name)
    contents.warnings += _left_behind(left, entry, contents)
    return shards


def _add(config: GenieConfig, contents: Found, shards: list[str]) -> None:
    for item in config.named:
        for name in _expand(item, contents.root):
            path = inside(contents.root, name, f"{config.name} ({item.key})")
            if path is None:
                contents.missing.append(MissingFile(name, f"{config.name}: {item.key}"))
                continue
            contents.paths.setdefault(name, path)
            if item.kind == SHARD and name not in shards:  # a named folder may contain it too
                shards.append(name)


def _add_nested(config: GenieConfig, contents: Found) -> None:
    """Add the files of the bundle that the extension file of an engine names."""
    for item in config.named:
        path = contents.paths.get(item.name)
        if path is None or not item.key.endswith(".extensions"):
            continue
        for text in _strings(read_json(path)):
            name = name_in(contents.root, text, files_only=True)
            if name is not None:
                contents.paths.setdefault(name, contents.root / name)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield value


def _left_behind(names: list[str], entry: str, contents: Found) -> Iterator[str]:
    """Yield a note for each file that is not sent although a configuration mentions it.

    A binary that no configuration mentions has a note too.
    """
    sent = [name for name in contents.paths if name.endswith((".json", ".txt", ".yaml"))]
    others = [name for name, _ in _sections(contents.root) if name not in contents.paths]
    texts = {}
    for name in [*sent, *others]:
        path = contents.paths.get(name, contents.root / name)
        if path.stat().st_size <= _CONFIG_BYTES:
            texts[name] = path.read_text("utf-8", "replace")
    for name in names:
        base = re.escape(name.rpartition("/")[2])
        users = [user for user, text in texts.items()
                 if user != name and re.search(rf"(?<![\w.-]){base}(?![\w-])", text)]  # fmt: skip
        if users:
            yield (
                f"fleet does not send {name}, although {users[0]} mentions it, because {entry} "
                "does not use it; to use another configuration, set `config:` under `bundle:`"
            )
        elif name.endswith(".bin"):
            yield f"fleet does not send {name}, because {entry} does not use it"


def _expand(item: Named, root: Path) -> Iterator[str]:
    """Yield the names of the files for an entry: all files of a folder, or the entry itself."""
    folder = root / item.name
    if item.kind != FOLDER or not folder.is_dir():
        yield item.name
        return
    needed = _IN_FOLDER.get(item.key.rpartition(".")[2])
    if needed and not (folder / needed).is_file():
        yield f"{item.name}/{needed}"
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            yield (Path(parent) / name).relative_to(root).as_posix()


def _loose(root: Path) -> Iterator[str]:
    """Yield the names in the bundle folder and in `artifacts/` (QAIRT GGUF route)."""
    for folder in (root, root / "artifacts"):
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                yield path.relative_to(root).as_posix()


def _with_resolved(bundle: Bundle, config: GenieConfig) -> Bundle:
    """Return the bundle with a configuration whose names are those of the bundle."""
    if not config.resolved:
        return bundle
    data = json.dumps(config.data, indent=2, ensure_ascii=False).encode()
    path = corrected_file(config.name, data)
    files = tuple(
        file_ref(path, file.name) if file.name == config.name else file for file in bundle.files
    )
    return replace(bundle, files=files)


def corrected_file(name: str, data: bytes) -> Path:
    """Return the path of a file in FLEET_HOME with this content, to send in place of a bundle's
    file.

    Raises BundleError if the file cannot be written.
    """
    digest = hashlib.sha256(data).hexdigest()
    path = fleet_home() / "corrected" / f"{digest[:16]}-{name.rpartition('/')[2]}"
    if not path.is_file() and not write_whole(path, data):
        raise BundleError(
            f"fleet cannot write the corrected {name} to {path}",
            hint="set FLEET_HOME to a folder that you can write to",
        )
    return path
