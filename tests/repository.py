"""Where things are, and which files make up the library."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "tfscale"


def library_files() -> list[Path]:
    """Returns the library's Python files, relative to the top of the repository."""
    return sorted(path.relative_to(ROOT) for path in LIBRARY.rglob("*.py"))


def module_name(path: Path) -> str:
    """Returns the dotted name under which a file of the library is imported."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
