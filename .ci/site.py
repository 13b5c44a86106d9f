"""Hooks of mkdocs: a page for each cause, and links that lead out of docs/ become words."""

from __future__ import annotations

import re
from posixpath import dirname, join, normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from fleet.doctor.page import cause_page
from fleet.triage.knowledge import knowledge

_OUT = re.compile(r"(?<!!)\[([^\]]+)\]\(([^):#]+)(?:#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """`causes/<id>.html`: an address that stays."""
    for cause in knowledge().causes.values():
        path = f"causes/{cause.id}.md"
        files.append(File.generated(config, path, content=cause_page(cause)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Files of the clone that are no pages are named, not linked."""
    folder = dirname(page.file.src_uri)

    def told(found: re.Match[str]) -> str:
        outside = normpath(join(folder, found[2])).startswith("..")
        return found[1] if outside else found[0]

    return _OUT.sub(told, markdown)
