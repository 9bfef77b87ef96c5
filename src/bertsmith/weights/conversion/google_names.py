"""The names of variables in google-research/bert and /albert: one more reversible table.

A variable is named for the scope of its layer: `bert/encoder/layer_3/output/dense/kernel`. Kernels
of dense layers are stored the other way about; tables, and the outputs of heads, are not.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from bertsmith.models.catalog import Family
from bertsmith.weights import names

_HEADS = {
    "cls.predictions": "cls/predictions",
    "cls.seq_relationship": "cls/seq_relationship",
    "qa_outputs": "cls/squad",
    "classifier": "",
    "predictions": "cls/predictions",
    "sop_classifier.classifier": "cls/seq_relationship",
}
"""The hub's modules whose tensors are `output_weights` and `output_bias`, and their scopes."""

_GROUP = "albert.encoder.albert_layer_groups.{block}.albert_layers.0"
_IN_GROUP = "bert/encoder/transformer/group_{block}/inner_group_0"
_ALBERT = {
    "albert.encoder.embedding_hidden_mapping_in": "bert/encoder/embedding_hidden_mapping_in",
    "albert.pooler": "bert/pooler/dense",
    "predictions.dense": "cls/predictions/transform/dense",
    "predictions.LayerNorm": "cls/predictions/transform/LayerNorm",
    f"{_GROUP}.attention.query": f"{_IN_GROUP}/attention_1/self/query",
    f"{_GROUP}.attention.key": f"{_IN_GROUP}/attention_1/self/key",
    f"{_GROUP}.attention.value": f"{_IN_GROUP}/attention_1/self/value",
    f"{_GROUP}.attention.dense": f"{_IN_GROUP}/attention_1/output/dense",
    f"{_GROUP}.attention.LayerNorm": f"{_IN_GROUP}/LayerNorm",
    f"{_GROUP}.ffn": f"{_IN_GROUP}/ffn_1/intermediate/dense",
    f"{_GROUP}.ffn_output": f"{_IN_GROUP}/ffn_1/intermediate/output/dense",
    f"{_GROUP}.full_layer_layer_norm": f"{_IN_GROUP}/LayerNorm_1",
}
_IN_VARIABLE = re.compile(r"(?<=/layer_)\d{1,6}(?=/)|(?<=/group_)\d{1,6}(?=/)")
_IN_HUB = re.compile(r"(?<=\.layer\.)\d{1,6}(?=\.)|(?<=\.albert_layer_groups\.)\d{1,6}(?=\.)")


class Variable(NamedTuple):
    """A tensor in TensorFlow: its name, and whether it is stored the other way about there."""

    name: str
    transposed: bool


def variable(hub: str, kind: Family) -> Variable | None:
    """What holds one of the hub's tensors in Google's code; None if nothing does."""
    template, number = _template(_IN_HUB, hub)
    found = _tables(kind)[0].get(template)
    return found and found._replace(name=found.name.replace("{block}", number))


def hub_name(name: str, kind: Family) -> tuple[str, bool] | None:
    """The hub's name for a variable, and whether it is stored the other way about; None if none."""
    # checkpoints made from TensorFlow Hub's modules
    template, number = _template(_IN_VARIABLE, name.removeprefix("module/"))
    found = _tables(kind)[1].get(template)
    return found and (found[0].replace("{block}", number), found[1])


def _template(number: re.Pattern[str], name: str) -> tuple[str, str]:
    """A name with a place in place of the layer's number, and that number."""
    found = number.search(name)
    return (number.sub("{block}", name, count=1), found[0]) if found else (name, "")


@cache
def _tables(kind: Family) -> tuple[dict[str, Variable], dict[str, tuple[str, bool]]]:
    """The table of a family, from the hub's names and from Google's."""
    there = {row.hub: _variable(row.hub, kind) for row in names.LAYOUTS[kind].table}
    back = {made.name: (hub, made.transposed) for hub, made in there.items()}
    assert len(back) == len(there)
    return there, back


def _variable(hub: str, kind: Family) -> Variable:
    module, _, leaf = hub.rpartition(".")
    if module in _HEADS:
        output = "output_weights" if leaf == "weight" else "output_bias"
        return Variable(f"{_HEADS[module]}/{output}".removeprefix("/"), False)
    scope = _ALBERT.get(module) or module.replace(".layer.", ".layer_").replace(".", "/")
    if kind == "albert":
        scope = scope.replace("albert/embeddings", "bert/embeddings")
    if module.endswith("_embeddings"):
        return Variable(scope, False)
    if "norm" in module.rpartition(".")[2].lower():
        return Variable(f"{scope}/{'gamma' if leaf == 'weight' else 'beta'}", False)
    if leaf == "weight":
        return Variable(f"{scope}/kernel", True)
    return Variable(f"{scope}/bias", False)
