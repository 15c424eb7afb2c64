"""Build the documentation site: ``make docs``, or ``python docs/make.py FOLDER``.

Pages are plain Markdown, to be read on a code host too, where a link such as
``../deploy/rbac/role.yaml`` leads to a file. In the site it leads to a page that shows it. So pages
and the files that they link to are put together first, and Sphinx makes the site from that. Every
warning of Sphinx, such as a link that leads nowhere, is an error.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
NAVIGATION = {
    "Start": ("first-steps", "tutorial", "frameworks", "recipes", "surviving", "inside"),
    "Homes": ("jupyter", "sos", "gateway"),
    "On a cluster": ("data", "warm", "queues", "packages", "admin", "security"),
    "Reference": ("magics", "commands", "settings", "troubleshooting", "coming-from"),
    "Developing": ("extending", "architecture", "map", "decisions", "cluster"),
}
LINK = re.compile(r"(?<=\]\()(?P<path>[^\s()#:]+)(?P<anchor>#[^\s()]*)?(?=\))")
FENCED = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
COPIED = "repository/"
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml", "": "docker"}


def assemble(to: Path) -> None:
    """Put the pages, and every file of the repository that one of them links to, into a folder."""
    done = {"docs/index.md"}
    todo = [f"docs/{page.name}" for page in DOCS.glob("*.md")]
    while todo:
        path = todo.pop()
        done.add(path)
        target = to / _place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith((".png", ".ipynb")):
            shutil.copy(ROOT / path, target)
            continue
        text, linked = _linked(_content(ROOT / path), path)
        target.write_text(text + (_navigation() if path == "docs/index.md" else ""), "utf-8")
        todo += [one for one in linked if one not in done]


def _linked(text: str, path: str) -> tuple[str, list[str]]:
    """A page's text with links as the site has them, and the files that it links to."""
    found: list[str] = []
    here = posixpath.dirname(_place(path))

    def rewritten(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match["path"]))
        if (ROOT / target / "README.md").is_file():
            target = f"{target}/README.md"
        if target.startswith("../") or not (ROOT / target).exists():
            return match[0]  # Sphinx says that it leads nowhere.
        found.append(target)
        return posixpath.relpath(_place(target), here or ".") + (match["anchor"] or "")

    fenced: list[str] = []
    text = FENCED.sub(lambda match: fenced.append(match[0]) or "\0", text)
    text = LINK.sub(rewritten, text)
    return re.sub("\0", lambda _: fenced.pop(0), text), found


def _place(path: str) -> str:
    """Where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"{COPIED}{path}/index.md"
    return COPIED + path + ("" if path.endswith((".md", ".ipynb")) else ".md")


def _content(path: Path) -> str:
    """A page; for a file of another kind or a folder, one that shows it."""
    # What shows a part of the repository is reached by links, not by the list of pages.
    head = "" if path.parent == DOCS else "---\norphan: true\n---\n\n"
    title = f"# {path.relative_to(ROOT).as_posix()}\n\n"
    if path.is_dir():
        shown = sorted(one.name for one in path.iterdir() if one.name[0] not in "_.")
        return head + title + "".join(f"- `{one}`\n" for one in shown)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return head + text
    return f"{head}{title}````{LANGUAGES.get(path.suffix, 'text')}\n{text}````\n"


def _navigation() -> str:
    parts = []
    for title, pages in NAVIGATION.items():
        names = "\n".join(pages)
        parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{names}\n```\n")
    return "".join(parts)


def main() -> int:
    """Build the site into the folder that is named, or build/site."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").absolute()
    source = site.with_name(f"{site.name}-source")
    for old in (site, source):
        shutil.rmtree(old, ignore_errors=True)
    assemble(source)
    command = [sys.executable, "-m", "sphinx", "--builder=html", "--quiet", "--fail-on-warning"]
    command += ["--keep-going", f"--conf-dir={DOCS}", f"--doctree-dir={source}/.doctrees"]
    code = subprocess.run([*command, str(source), str(site)], check=False).returncode
    if code == 0:
        print(f"{site}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
