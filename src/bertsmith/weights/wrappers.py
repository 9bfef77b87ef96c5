"""The names of weights that other modules were wrapped around when they were saved.

module.bert.embeddings...           torch's DataParallel and DistributedDataParallel
_orig_mod.bert.embeddings...        torch.compile, at the front or at a part of the model
model.bert.embeddings...            a LightningModule, whatever its attribute is called
0.auto_model.embeddings...          sentence-transformers
"""

from __future__ import annotations

import re
from collections.abc import Collection

# put around parts of a model by torch.compile, FSDP and activation checkpointing
_AROUND_PARTS = re.compile(
    r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
_PARALLEL = "module."
# that of the token table, with the prefix that its family's names have
_TABLE = re.compile(
    r"(?P<wrapper>([^.]+\.)*?)"
    r"(((bert|albert|roberta|distilbert|electra)\.)?embeddings\.word_embeddings"
    r"|(model\.)?embeddings\.tok_embeddings)\.weight"
)
ADAPTER_FILE = "adapter_config.json"
"""The settings of an adapter, in its folder."""
_ADAPTER = re.compile(r"\.(base_layer|lora_\w+|modules_to_save|original_module)\.")


def unwrapped(names: Collection[str]) -> dict[str, str]:
    """Return the names that weights have in the model itself, by their names in a file.

    They are those of the file where it is not clear which part of it is the model.
    """
    inner = {name: _AROUND_PARTS.sub("", name) for name in names}
    wrapper = _wrapper(inner.values())
    results = {name: item.removeprefix(wrapper) for name, item in inner.items()}
    return results if len({*results.values()}) == len(results) else {name: name for name in names}


def _wrapper(names: Collection[str]) -> str:
    """Return what stands before the names of a model, "" where nothing does, or it has two."""
    wrappers = {match["wrapper"] for match in map(_TABLE.fullmatch, names) if match}
    if wrappers:
        return wrappers.pop() if len(wrappers) == 1 else ""
    return _PARALLEL if all(name.startswith(_PARALLEL) for name in names) else ""


def adapter_in(names: Collection[str]) -> str | None:
    """Return the name of a weight of an adapter that is among those of a model, None without."""
    return next((name for name in names if _ADAPTER.search(name)), None)
