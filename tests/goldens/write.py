"""Rewrite the goldens and show what changes.

    PYTHONPATH=src:tests python -m goldens.write [NAME ...]

names are those of the files in values/, and `losses`.
"""

from __future__ import annotations

import difflib
import sys

from goldens.losses import cells, quiet_laboratory
from goldens.making import MAKERS, VALUES, written


def main() -> None:
    """Make the goldens that are named, or all, and print a diff of each that changed."""
    wanted = sys.argv[1:] or [*MAKERS, "losses"]
    with quiet_laboratory() as laboratory:
        for name in wanted:
            if name == "losses":
                value = {cell: laboratory.cell(cell) for cell in cells() if cell[:4] == "fp32"}
            else:
                value = MAKERS[name](laboratory)
            file = VALUES / f"{name}.json"
            old = file.read_text(encoding="utf-8") if file.exists() else ""
            new = written(value)
            file.write_text(new, encoding="utf-8")
            shown = difflib.unified_diff(old.splitlines(), new.splitlines(), "old", name, n=1)
            print("\n".join([f"{name}: {'same' if old == new else 'changed'}", *shown][:60]))


if __name__ == "__main__":
    main()
