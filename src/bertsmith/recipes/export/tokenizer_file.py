"""The tokenizer.json of an exported folder, by which other programs give the engine's ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertsmith.recipes.export.config import Target
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.folder.files import COMPILED_FILE, json_bytes, read_json
from bertsmith.tokens.learning.unigram import BLANKS
from bertsmith.tokens.normalisation import UnigramRules, compiled
from bertsmith.tokens.tokenizer import Tokenizer

_BLANK_STEP = {
    "type": "Replace",
    "pattern": {"Regex": f"[{''.join(BLANKS)}]"},
    "content": " ",
}


def adapt_tokenizer(folder: Path, tokenizer: Tokenizer, target: Target) -> None:
    """Rewrite normalisation in a folder's tokenizer.json where programs differ from the engine.

    A WordPiece vocabulary that keeps accents reads composed text (NFC), which the file of
    `Tokenizer.save` leaves to the slow tokenizer. transformers.js does not look at replacement
    rules and takes NFKC instead, so those that replace white space alone become an expression.
    """
    rules, path = tokenizer.rules, folder / COMPILED_FILE
    data = read_json(path)
    normalizer: dict[str, Any] = data["normalizer"] or {}
    if isinstance(rules, BasicRules):
        if rules.strips or not rules.composes:
            return
        data["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, normalizer]}
    elif isinstance(rules, UnigramRules) and target == "transformers.js":
        if rules.charsmap != compiled(BLANKS):
            return
        normalizer["normalizers"] = [
            _BLANK_STEP if step["type"] == "Precompiled" else step
            for step in normalizer["normalizers"]
        ]
    else:
        return
    path.write_bytes(json_bytes(data))
