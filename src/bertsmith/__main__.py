"""``python -m bertsmith``: the command, in the form that ``torchrun -m bertsmith`` starts."""

from __future__ import annotations

import sys

from bertsmith.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
