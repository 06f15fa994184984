"""Write the list of the library's files into README.md: one line each, its docstring's first.

Run it from anywhere with `python docs/house.py`; a test holds the list against the tree.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
SECTION = re.compile(r"(?<=<!-- house -->\n).*(?=<!-- end of house -->)", re.DOTALL)


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".")


def house() -> str:
    """Return one line per file of jaxpar/, packages after the files beside them."""
    top, inner = ROOT.glob("jaxpar/*.py"), ROOT.glob("jaxpar/*/*.py")
    lines = []
    for path in (*sorted(top), *sorted(inner)):
        name = str(path.relative_to(ROOT)).removesuffix("__init__.py")
        lines.append(f"{name:<42} {first_line(path)}")
    return "\n".join(["```", *lines, "```", ""])


if __name__ == "__main__":
    README.write_text(SECTION.sub(lambda _: house(), README.read_text("utf-8")), "utf-8")
