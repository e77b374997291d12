"""Hooks of MkDocs: the menu, files of the repository's root as pages, and links that leave docs/.

The menu has the sections of docs/README.md, with the pages that each links to, by their titles.

A link to a page of the root leads to its page; a link to another file of the repository becomes its path in code, because the
site does not have it. A link to a file that the repository does not have is a warning, which `--strict` makes an error.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
log = logging.getLogger("mkdocs.hooks.pages_of_root")


def on_config(config):
    menu, seen = [{"Start": "README.md"}], {"README.md"}
    for section in re.split(r"^## ", (ROOT / "docs/README.md").read_text(), flags=re.MULTILINE)[1:]:
        pages = []
        for link in LINK.finditer(section):
            target = posixpath.normpath(posixpath.join("docs", link[2]))
            name = target.removeprefix("docs/")
            if name not in seen and name.endswith(".md") and (target.startswith("docs/") or target in PAGES):
                seen.add(name)
                pages.append(name)
        menu.append({section.splitlines()[0]: pages})
    menu.append({"Project": [name for name in PAGES if name not in seen]})
    config.nav = menu
    return config


def on_files(files, config):
    for name in PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    source = page.file.src_uri
    of_root = source in PAGES
    folder = "" if of_root else posixpath.join("docs", posixpath.dirname(source))

    def replaced(match):
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/") or path in PAGES:
            inside = path.removeprefix("docs/") if path.startswith("docs/") else path
            if (ROOT / path).is_dir():
                inside = posixpath.join(inside, "README.md")
            from_page = posixpath.relpath(inside, posixpath.dirname(source) or ".")
            return f"[{text}]({from_page}{anchor})"
        if not (ROOT / path).exists():
            log.warning("%s: the link to %s leads nowhere", source, target)
        return text if text.startswith("`") else f"{text} (`{path}`)" if text != path else f"`{path}`"

    return "".join(
        part if part.startswith("```") else LINK.sub(replaced, part)
        for part in re.split(r"(```.*?```)", markdown, flags=re.DOTALL)
    )
