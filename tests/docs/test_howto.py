"""Every shell block of docs/howto, as it stands, in the project that the tutorial makes.

A file that a page says to write is written: a YAML block under a line with its name alone. A line
ends with 0, or as its remark says: `# exit code 0 or 1`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_quickstart import MARK, home, names, path_of, tutorial, typed
from tests.transport.sshd import running

__all__ = ["home"]
ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))
FILE = re.compile(r"^`([\w/.-]+)`:\n\n```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODES = re.compile(r"#.*exit code ([\d or]+)")


def lines(page: Path) -> list[str]:
    found = "".join(BLOCK.findall(page.read_text("utf-8"))).splitlines()
    return [_allowed(line) for line in found]


def _allowed(line: str) -> str:
    codes = CODES.search(line)
    if not codes:
        return line
    return f"{{ {line}\n}} || [[ ' {codes[1]} ' == *\" $? \"* ]]"


def test_there_are_ten_and_each_is_short_and_listed() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    assert len(PAGES) >= 10
    for page in PAGES:
        assert len(page.read_text("utf-8").split()) < 400, page.name
        assert f"(howto/{page.name})" in index
        assert lines(page), page.name


@pytest.mark.qairt
def test_every_line_can_be_typed(home: Path, tmp_path: Path) -> None:
    where = tmp_path / "clone"
    where.mkdir()
    (where / "assets").symlink_to(ROOT / "assets")
    (init,) = [line for line in tutorial() if line.startswith("fleet init ")]
    made = [init, "cd my-boards", "fleet trust all", "fleet deploy --no-run"]
    code, said = typed(made, where, home, path_of())
    assert code == 0, said[-3000:]
    with running(tmp_path) as gateway:
        host = gateway.host()
        with (home / ".ssh" / "config").open("a") as config:
            config.write(
                f"Host bench-gw\n  HostName 127.0.0.1\n  Port {host.port}\n  User {host.user}\n"
                f"  IdentityFile {gateway.identity}\n"
            )
        (home / ".ssh" / "known_hosts").write_text(gateway.known_hosts.read_text())
        for page in PAGES:
            for name, text in FILE.findall(page.read_text("utf-8")):
                (where / "my-boards" / name).write_text(text)
            script = lines(page)
            code, said = typed(script, where / "my-boards", home, path_of())
            done = said.count(MARK)
            assert code == 0, f"{page.name}: {script[done - 1]}\n{said[-3000:]}"
            assert done == len(script), page.name
    assert names(made) == names(tutorial())
