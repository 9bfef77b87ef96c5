"""Two ranks of which one fails, for test_distribution.py: `torchrun ... -m training.failing_rank`.

It imports no more than that needs.
"""

from __future__ import annotations

import sys

from bertsmith.core.errors import UserError
from bertsmith.training.distribution import join_world


def main() -> int:
    try:
        with join_world() as world:
            assert world.sum([world.rank + 1.0]) == [3.0]
            if world.rank == 1:
                raise UserError("the dog ate it", remedy="feed the dog")
            world.wait_for_first()
            world.wait()
    except UserError as error:
        print(f"bertsmith: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
