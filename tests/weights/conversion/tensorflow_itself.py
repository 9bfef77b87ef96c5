"""Run by a Python that has TensorFlow: writes and reads checkpoints as google-research/bert does.

python tensorflow_itself.py write VALUES.npz PREFIX [sharded]
python tensorflow_itself.py read PREFIX VALUES.npz

Names of variables stand in the .npz files with | in place of /.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np


def write(values: dict[str, Any], prefix: str, *, sharded: bool) -> None:
    """Variables of a graph, saved by the Saver."""
    tf = importlib.import_module("tensorflow")

    old = tf.compat.v1
    with tf.Graph().as_default():
        halves = {}
        for number, (name, value) in enumerate(values.items()):
            # each device is a shard of its own
            with tf.device(f"/cpu:{number % 2}" if sharded else None):
                halves[name] = old.get_variable(name, initializer=value, use_resource=False)
        config = old.ConfigProto(device_count={"CPU": 2})
        with old.Session(config=config) as session:
            session.run(old.global_variables_initializer())
            old.train.Saver(halves, sharded=sharded).save(session, prefix)


def read(prefix: str) -> dict[str, Any]:
    """Every variable, by the reader that init_from_checkpoint uses."""
    tf = importlib.import_module("tensorflow")

    reader = tf.train.load_checkpoint(prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def main() -> None:
    """Do what the command line asks for."""
    task, one, other, *more = sys.argv[1:]
    if task == "write":
        values = {name.replace("|", "/"): value for name, value in np.load(one).items()}
        write(values, other, sharded="sharded" in more)
    else:
        np.savez(other, **{name.replace("/", "|"): value for name, value in read(one).items()})


if __name__ == "__main__":
    main()
