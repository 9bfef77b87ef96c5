"""Models of `transformers`, and their weights by the names of google-research's variables.

The names are made by walking through the modules, as its own loader of such checkpoints did.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertsmith.network.batch import pack
from bertsmith.network.model import Model, forward_only
from bounds import close_to_transformers

Arrays = dict[str, Any]

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY = (*SPECIALS, *(f"word{n}" for n in range(94)))
SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 23,
    "type_vocab_size": 2,
}


def varied(model: Any, seed: int = 3) -> Any:  # noqa: ANN401
    """The model with norms and biases that are not what they start as, to be read."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model.eval()


def arrays(model: nn.Module) -> Arrays:
    """The weights of one of `transformers`' BERTs by the names they have in TensorFlow."""
    return dict(_arrays(model))


def _arrays(model: nn.Module) -> Iterator[tuple[str, Any]]:
    scopes = {"cls.seq_relationship": "cls/seq_relationship", "qa_outputs": "cls/squad"}
    for path, module in model.named_modules():
        scope = path.replace("layer.", "layer_").replace(".", "/")
        if isinstance(module, nn.Embedding):
            yield scope, module.weight.detach().numpy()
        elif isinstance(module, nn.LayerNorm):
            yield f"{scope}/gamma", module.weight.detach().numpy()
            yield f"{scope}/beta", module.bias.detach().numpy()
        elif path == "cls.predictions.decoder":
            yield "cls/predictions/output_bias", module.bias.detach().numpy()
        elif path == "classifier":
            yield "output_weights", module.weight.detach().numpy()
            yield "output_bias", module.bias.detach().numpy()
        elif path in scopes:
            yield f"{scopes[path]}/output_weights", module.weight.detach().numpy()
            yield f"{scopes[path]}/output_bias", module.bias.detach().numpy()
        elif isinstance(module, nn.Linear):
            yield f"{scope}/kernel", module.weight.detach().numpy().T
            yield f"{scope}/bias", module.bias.detach().numpy()


def google_config(**changes: object) -> dict[str, Any]:
    """bert_config.json as Google's folders have it."""
    return {
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "initializer_range": 0.02,
        **SIZES,
        **changes,
    }


def write_vocabulary(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in VOCABULARY))


def compared(ours: Model, theirs: Any) -> set[str]:  # noqa: ANN401
    """Names of the outputs; each is that of transformers, where each sequence is run by itself."""
    generator = torch.Generator().manual_seed(11)
    ids = [torch.randint(5, 99, (length,), generator=generator) for length in (4, 13, 23)]
    segments = [(torch.arange(len(id_)) > 5).long() for id_ in ids]
    names: set[str] = set()
    batch = pack([id_.numpy() for id_ in ids], [segment.numpy() for segment in segments])
    with forward_only(ours, "fp32"):
        encoded = ours.encoder(batch)
        for place, (one, other) in enumerate(zip(ids, segments, strict=True)):
            outputs = theirs(one[None], token_type_ids=other[None], output_hidden_states=True)
            own = slice(*batch.offsets[place : place + 2].tolist())
            pairs = {"hidden": (encoded.last[own], outputs.hidden_states[-1][0])}
            if "masked_lm" in ours.heads:
                logits = outputs[
                    "prediction_logits" if "prediction_logits" in outputs else "logits"
                ]
                pairs["masked_lm"] = ours.masked_lm(encoded.last[own]), logits[0]
            if "next_sentence" in ours.heads:
                logits = outputs[next(key for key in outputs if key.startswith(("seq", "sop")))]
                pairs["next_sentence"] = ours.next_sentence(encoded, batch)[place], logits[0]
            if "classify" in ours.heads:
                pairs["classify"] = ours.classify(encoded, batch)[place], outputs.logits[0]
            for name, (mine, its) in pairs.items():
                close_to_transformers(mine, its, name)
            names |= pairs.keys()
    return names
