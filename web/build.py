"""Builds the site into build/site: `make site`. A lesson runs only when something has changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from jaxpar.course.page import lesson_page
from jaxpar.explore.bundle import bundle
from web.pages import ROOT, pages

WEB = Path(__file__).parent
RUNTIME = (
    "pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json",
)  # fmt: skip
"""The files of Pyodide that the site serves."""


def build(folder: Path) -> int:
    """Builds the site into the folder `site` of a folder; returns how that ended.

    What lessons showed is kept beside it, in `lessons`, and the pages in Markdown in `pages`.
    """
    shutil.rmtree(folder / "pages", ignore_errors=True)
    sections: dict[str, list[str]] = {}
    for section, path, text in pages(folder / "lessons"):
        sections.setdefault(section, []).append(path)
        _write(folder / "pages" / path, text.encode())
    for beside in ("docs/cluster", "docs/classroom"):
        shutil.copytree(ROOT / beside, folder / "pages" / beside)
    write_assets(folder / "pages" / "assets")
    configuration = folder / "mkdocs.yml"  # JSON is YAML, too
    _write(configuration, json.dumps(_configuration(sections), indent=1).encode())
    program = [sys.executable, "-m", "zensical", "build", "--strict", "-f", configuration]
    return subprocess.run(program).returncode


def write_assets(folder: Path) -> None:
    """Writes what the pages load: scripts, style sheets, the library, and Python itself."""
    shutil.copytree(WEB / "assets", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("predict.js", "page.css"):
        _write(folder / name, lesson_page.resource(name).encode())
    for name in RUNTIME:
        _write(folder / "pyodide" / name, (WEB / "node_modules/pyodide" / name).read_bytes())
    _write(folder / "jaxpar.zip", bundle())


def _configuration(sections: dict[str, list[str]]) -> dict[str, object]:
    """What Zensical reads, which is what MkDocs with its Material theme reads."""
    home = sections.pop("")
    toggles = [
        ("(prefers-color-scheme: light)", "default", "lucide/moon", "Dark colours"),
        ("(prefers-color-scheme: dark)", "slate", "lucide/sun", "Light colours"),
    ]
    return {
        "site_name": "jaxpar",
        "docs_dir": "pages",
        "site_dir": "site",
        "nav": [*home, *({section: paths} for section, paths in sections.items())],
        "theme": {
            "name": "material",
            "font": False,  # or the pages ask Google for fonts
            "features": ["navigation.footer", "navigation.indexes", "navigation.top",
                         "content.code.copy", "search.highlight", "toc.follow"],
            "palette": [
                {"media": media, "scheme": scheme, "toggle": {"icon": icon, "name": name}}
                for media, scheme, icon, name in toggles
            ],
        },
        "extra_css": ["assets/page.css", "assets/site.css"],
        "extra_javascript": [
            {"path": f"assets/{name}", "type": "module"} for name in ("predict.js", "site.js")
        ],
        "markdown_extensions": [
            "attr_list", "md_in_html", "sane_lists", "tables", "fenced_code",
            {"toc": {"permalink": True}}, "pymdownx.highlight", "pymdownx.superfences",
        ],
        "plugins": ["search"],
    }  # fmt: skip


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    sys.exit(build(ROOT / "build"))
