"""Size of the source: lines of code, files, long functions and crowded folders.

A line of code is a line that holds a token other than a comment or a docstring. Run it as
`python -m scripts.size`; with a folder as argument it counts that folder instead of `src/sennit`.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path("src/sennit")
LONG, TOO_LONG = 50, 80
CROWDED = 25
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Size:
    """Counts over all modules below a folder."""

    files: int = 0
    code_lines: int = 0
    functions: dict[str, int] = field(default_factory=dict[str, int])
    """Lines per function, by `path:line name`."""
    modules: Counter[str] = field(default_factory=Counter[str])
    """Modules per folder."""

    def longer_than(self, lines: int) -> list[str]:
        """Return the functions above a number of lines, longest first."""
        long = [name for name, count in self.functions.items() if count > lines]
        return sorted(long, key=lambda name: -self.functions[name])


def measure(folder: Path = SOURCE) -> Size:
    """Count every module below `folder`."""
    size = Size()
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        size.files += 1
        size.modules[str(path.parent)] += path.name != "__init__.py"
        size.code_lines += len(_code_lines(path) - _docstring_lines(tree))
        for node in ast.walk(tree):
            if isinstance(node, _Function):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                size.functions[f"{path}:{node.lineno} {node.name}"] = lines
    return size


def _code_lines(path: Path) -> set[int]:
    with tokenize.open(path) as file:
        tokens = [t for t in tokenize.generate_tokens(file.readline) if t.type not in _NO_CODE]
    return {line for t in tokens for line in range(t.start[0], t.end[0] + 1)}


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of strings that stand alone: docstrings, also those under fields."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def main() -> None:
    """Print the counts, and name what is long or crowded."""
    size = measure(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE)
    long = size.longer_than(LONG)
    share = len(long) / max(len(size.functions), 1)
    print(f"{size.code_lines:,} lines of code in {size.files} files")
    print(f"{len(size.functions):,} functions, {len(long)} above {LONG} lines ({share:.1%})")
    for name in size.longer_than(TOO_LONG):
        print(f"  {name}: {size.functions[name]} lines, above {TOO_LONG}")
    for folder, count in size.modules.most_common():
        if count > CROWDED:
            print(f"  {folder}: {count} modules, above {CROWDED}")


if __name__ == "__main__":
    main()
