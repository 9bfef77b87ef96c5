"""AutoTokenizer gives the models that we save the segments that they tell, and no others."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from bertsmith.batches.truncation import encode_pair
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.normalisation import UnigramRules
from bertsmith.tokens.tokenizer import Rules, Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS, UNIGRAM_SPECIALS
from bertsmith.weights.folder import save_model
from families import MODELS
from parity.other_process import Transformers

PIECES = tuple(f"\u2581word{number}" for number in range(94))
VOCABULARIES: dict[str, tuple[tuple[str, ...], Rules]] = {
    "unigram": ((*UNIGRAM_SPECIALS, *PIECES), UnigramRules(scores=(0.0,) * 5 + (-2.0,) * 94)),
    "wordpiece": (
        (*SPECIALS, *(piece.removeprefix("\u2581") for piece in PIECES)),
        BasicRules(lowercase=True),
    ),
}


@pytest.mark.parametrize("version", ["transformers4", "transformers5"])
@pytest.mark.parametrize("kind", VOCABULARIES)
def test_a_tokenizer_gives_the_segments_that_its_model_tells(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, version: str
) -> None:
    asked: Transformers = request.getfixturevalue(version)
    tokenizer = Tokenizer(*VOCABULARIES[kind])
    texts = ("word1 word2 word3", "word4")
    ids, segments = encode_pair(tokenizer, *tokenizer.encode(texts), longest=16)
    families: tuple[FamilyName, ...] = ("bert", "albert", "roberta", "distilbert", "modernbert")
    for family in families:
        config = MODELS[f"{family}-none"]
        offset = tokenizer.pad_id + 1 if config.encoder.position_offset else 0
        encoder = dataclasses.replace(config.encoder, position_offset=offset)
        model = build_model(dataclasses.replace(config, encoder=encoder), seed=11)
        save_model(tmp_path / family, model, tokenizer)
        given = asked.ask("inputs", folder=str(tmp_path / family), first=texts[0], second=texts[1])
        wanted = {"token_type_ids": segments.tolist()} if encoder.segments > 1 else {}
        wanted |= {"input_ids": ids.tolist(), "attention_mask": [1] * len(ids)}
        assert given == wanted, family


@pytest.mark.parametrize("names", [None, ["input_ids", "attention_mask"]], ids=str)
@pytest.mark.parametrize("version", ["transformers4", "transformers5"])
@pytest.mark.parametrize("kind", VOCABULARIES)
def test_pairs_have_the_segments_that_their_tokenizer_gives(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    version: str,
    names: list[str] | None,
) -> None:
    """Where it gives none, as an AlbertTokenizer of version 5 by default, a model reads zeros."""
    asked: Transformers = request.getfixturevalue(version)
    first, theirs = tmp_path / "first", tmp_path / "theirs"
    Tokenizer(*VOCABULARIES[kind]).save(first)
    path = first / "tokenizer_config.json"
    settings = json.loads(path.read_text("utf-8")) | {"model_input_names": names}
    path.write_text(json.dumps({key: item for key, item in settings.items() if item}), "utf-8")
    made = {"kind": "AutoTokenizer", "add": [], "add_special": []}
    asked.ask("save_tokenizer", folder=str(first), to=str(theirs), **made)
    texts = ("word1 word2 word3", "word4")
    given = asked.ask("inputs", folder=str(theirs), first=texts[0], second=texts[1])
    ours = Tokenizer.load(theirs)
    ids, segments = encode_pair(ours, *ours.encode(texts), longest=16)
    assert ids.tolist() == given["input_ids"]
    assert segments.tolist() == given.get("token_type_ids", [0] * len(ids))
    # and in a model that was trained with them, whoever reads it
    save_model(tmp_path / "ours", build_model(MODELS["bert-none"], seed=11), ours)
    again = asked.ask("inputs", folder=str(tmp_path / "ours"), first=texts[0], second=texts[1])
    assert again == given
