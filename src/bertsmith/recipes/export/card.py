"""The README.md of an exported folder: its content and its use."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertsmith.core import VERSION
from bertsmith.core.printable import counted, markdown
from bertsmith.engine.answers import MAX_ANSWER_LENGTH
from bertsmith.network.config import ModelConfig
from bertsmith.recipes.export.config import Target
from bertsmith.recipes.export.graph import SENTENCE_OUTPUT, input_names, output_names
from bertsmith.recipes.export.runtimes import BOUND, Comparison
from bertsmith.tasks.multi_label import THRESHOLD
from bertsmith.tasks.rank import RELEVANCE
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.normalisation import UnigramRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.config_json import CONFORMAL, MIN_CONFIDENCE, NO_ANSWER
from bertsmith.weights.sentence_folder import SentenceSettings

_INPUTS = {
    "input_ids": "token ids",
    "attention_mask": "1 for tokens, 0 for padding, on either side",
    "token_type_ids": "0 for the first text, 1 for the second of a pair",
}
_OUTPUTS = {
    "last_hidden_state": "(batch, length, {hidden}), a vector for each token",
    "pooler_output": "(batch, {hidden}), the pooler's vector",
    "sentence_embedding": "(batch, {width}), the vector of a text, pooled as the folder says",
    "start_logits": "(batch, length), the first token of the answer",
    "end_logits": "(batch, length), the last token of the answer",
    "seq_relationship_logits": "(batch, 2): is the next text, is a random one",
    "sop_logits": "(batch, 2): in order, swapped",
}
_COLUMNS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
_INSTALL: dict[Target, str] = {
    "onnx": "pip install onnxruntime tokenizers",
    "openvino": "pip install openvino tokenizers",
    "torch-export": "pip install torch numpy tokenizers",
    "transformers.js": "npm install @huggingface/transformers",
}
_OPEN: dict[Target, tuple[str, ...]] = {
    "onnx": ('session = onnxruntime.InferenceSession("model.onnx")',),
    "openvino": (
        "# without the hint processors with bf16 compute in it",
        'settings = {"INFERENCE_PRECISION_HINT": "f32"}',
        'model = openvino.Core().compile_model("openvino_model.xml", "CPU", settings)',
        "results = model(inputs)",
    ),
    "torch-export": (
        'model = torch.export.load("model.pt2").module()',
        "tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}",
        "with torch.no_grad():",
    ),
}
_MODULES: dict[Target, str] = {
    "onnx": "onnxruntime", "openvino": "openvino", "torch-export": "torch",
}  # fmt: skip
# a number's pipeline would give the softmax of one value, which is 1
_PIPELINES = {
    "class": "text-classification",
    "classes": "text-classification",
    "tags": "token-classification",
}
# families and heads that transformers.js has no class for, so that AutoModel is used
_NO_PIPELINE = {("albert", "tags"), ("modernbert", "span")}
# the names that transformers.js takes for a model's
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
_NOT_IN_NAME = re.compile(r"--|\.\.|\.(git|ipynb)$")
_SPACED_IN_NODE = (
    r"const spaced = (text) => text.split(/[\p{White_Space}\x1c-\x1f]+/u)"
    ".filter(Boolean).join(' ');"
)
_ONE_ROW_IN_NODE = "for (const name in inputs) inputs[name] = inputs[name].unsqueeze(0);"
_PARTS = {"head": "the beginning", "tail": "the end", "head+tail": "beginning and end"}


@dataclass(frozen=True, kw_only=True)
class Described:
    """The subject of README.md: a model, with the steps of its sentence-transformers folder."""

    config: ModelConfig
    tokenizer: Tokenizer
    sentence: SentenceSettings | None
    target: Target
    name: str
    """The name of the exported folder."""
    other_characters: str = ""
    """The characters of the vocabulary for which its tokenizer.json gives other ids."""

    @property
    def outputs(self) -> list[str]:
        """The names of all outputs."""
        return output_names(self.config, self.sentence)

    @property
    def printed(self) -> list[str]:
        """The outputs that the examples print: the vector of a text alone where there is one."""
        return [SENTENCE_OUTPUT] if SENTENCE_OUTPUT in self.outputs else self.outputs

    @property
    def longest(self) -> int:
        """Tokens of a text that are read: as in training, or as the folder says."""
        given = self.tokenizer.longest if self.sentence is None else self.sentence.longest
        given, limit = self.config.truncated_to or given, self.config.encoder.longest
        return limit if given is None else min(given, limit)

    @property
    def width(self) -> int:
        """The length of the vector of a text, 0 without one."""
        if self.sentence is None:
            return 0
        width = self.config.encoder.hidden * len(self.sentence.pool)
        for layer in self.sentence.after:
            width = getattr(layer, "outputs", width)
        return width

    @property
    def pairs(self) -> bool:
        """Return whether two texts are read together."""
        config, trained = self.config, self.config.preprocessing
        is_pair_model = config.next_sentence and not config.masked_lm
        return (
            is_pair_model
            or config.predicts in ("span", "choice")
            or bool(trained is not None and trained.pairs)
        )


def card(described: Described, comparison: Comparison) -> str:
    """Return the text of README.md."""
    config, target = described.config, described.target
    lines = [
        f"# A model exported to {target}",
        "",
        f"{config.encoder.family}, {counted(config.encoder.layers, 'layer')} of "
        f"{config.encoder.hidden}, texts of at most {config.encoder.longest:,} tokens. "
        f"Made by bertsmith {VERSION}.",
        "",
        "| input | int64 |",
        "|---|---|",
        *(f"| {name} | {_shape(config)}, {_INPUTS[name]} |" for name in input_names(config)),
        "",
        "| output | float32 |",
        "|---|---|",
        *(f"| {name} | {_meaning(described, name)} |" for name in described.outputs),
        "",
        "Batch and length are free. After writing, the file was compared with the engine on "
        f"{counted(comparison.batches, 'batch', 'batches')} of up to {comparison.longest:,} "
        f"tokens: the outputs differ by at most {comparison.difference:.1e}, relative to the "
        f"largest value ({BOUND:.0e} is allowed).",
        "",
    ]
    if config.labels:
        names = ", ".join(map(markdown, config.labels))
        lines += [f"Labels, in the order of the outputs: {names}.", ""]
    notes = (
        *(_decided(config), _withheld(config), _continued(config), _prompts(described)),
        *(_read(described), _pairs_cut(described), _questions_cut(described)),
        _other_ids(described),
    )
    for note in filter(None, notes):
        lines += [note, ""]
    return "\n".join([*lines, ""]) + _example(described)


def _decided(config: ModelConfig) -> str:
    """Return how bertsmith makes answers of the outputs, where that is not plain; else ""."""
    if config.predicts == "tags":
        return "In bertsmith a word has the tag of its first token."
    if config.predicts == "span":
        return (
            f"The answer of bertsmith is the span of at most {MAX_ANSWER_LENGTH} tokens of the "
            "second text whose two logits have the largest sum."
        )
    if config.predicts == "classes":
        return f"bertsmith gives the labels whose probability is above {THRESHOLD}."
    if config.conformal is not None:
        return (
            f"For each coverage, `{CONFORMAL}` in `config.json` has the least probability of an "
            "answer in bertsmith's prediction set."
        )
    return ""


def _prompts(described: Described) -> str:
    """Return the prompts of a folder of which the code below writes none; "" without any."""
    sentence = described.sentence
    if sentence is None or sentence.default_prompt is not None:
        return ""
    prompts = {name: text for name, text in sentence.prompts.items() if text}
    if not prompts:
        return ""
    known = ", ".join(markdown(f"{name}: {_string(text)}") for name, text in prompts.items())
    return f"The code below writes no prompt before a text; the folder has these: {known}."


def _withheld(config: ModelConfig) -> str:
    """Return when bertsmith gives no answer, which the file does not know; "" if it always does."""
    setting = ""
    if config.min_confidence is not None:
        condition = f"the largest probability is below {config.min_confidence:.6g}"
        setting = MIN_CONFIDENCE
    elif config.no_answer is not None:
        condition = (
            "the score of no answer, the sum of both logits of the first token, is more than "
            f"{config.no_answer:.6g} above that of the best span"
        )
        setting = NO_ANSWER
    if not setting:
        return ""
    return f"bertsmith gives no answer where {condition} (`{setting}` in `config.json`)."


def _continued(config: ModelConfig) -> str:
    """Return a note on continuing a text, "" for models that do not."""
    if not (config.masked_lm and config.encoder.causal):
        return ""
    return (
        "The code below encodes whole texts, with a special token at the end. To continue a text, "
        "leave out that token: the logits of the one before it are those of the next token."
    )


def _read(described: Described) -> str:
    """Return what is read of a text, "" where that is as much as the network can."""
    trained, limit = described.config.preprocessing, described.config.encoder.longest
    # no runtime reads in windows
    if trained is not None and described.config.windowed:
        longest = counted(trained.longest, "token")
        return f"In training, texts of more than {longest} were read in windows of this length."
    if described.longest == limit:
        return ""
    how_much = "as its sentence-transformers folder says"
    if described.sentence is None:
        how_much = "as the model_max_length of its tokenizer says"
    if trained is not None:
        how_much = f"as in training; of a longer text {_PARTS[trained.long]}"
    read = f"At most {counted(described.longest, 'token')} of a text are read, {how_much}."
    # tokenizers cut at one end; the library of node always at the last one
    in_python = described.target != "transformers.js"
    as_trained = trained is None or trained.long == "head" or (trained.long == "tail" and in_python)
    if as_trained:
        return read
    return f"{read} The code below reads the beginning alone: shorten longer texts before."


def _pairs_cut(described: Described) -> str:
    """Return a note on long pairs, where they are cut otherwise; "" where they are not."""
    # beside a context a question is short
    if not described.pairs or described.config.predicts == "span":
        return ""
    if described.target != "transformers.js":
        left = described.longest - described.tokenizer.specials_around(pair=True)
        if left % 2 == 0:
            return ""
        return (
            f"Of a pair of texts of more than {left // 2} tokens each, the second at least as long "
            "as the first, the code below reads a token more of the second, and one less of the "
            "first, than bertsmith, which changes the answer a little: shorten such texts before."
        )
    return (
        "The library shortens a long pair at its end, so that a long first text leaves less of the "
        "second, or nothing, which changes the answer: shorten such texts before."
    )


def _questions_cut(described: Described) -> str:
    """Return a note on questions after long contexts, where they are cut off; "" elsewhere."""
    trained, in_python = described.config.preprocessing, described.target != "transformers.js"
    at_beginning = trained is not None and trained.long == "tail" and in_python
    if described.config.predicts != "choice" or at_beginning:
        return ""
    return (
        "Of a question after a long context, bertsmith shortens the context and keeps the question "
        "where both are given; the code below cuts the end, and with it the question: shorten long "
        "contexts before."
    )


def _other_ids(described: Described) -> str:
    """Return for which characters tokenizer.json gives other ids than bertsmith; "" for none."""
    rules = described.tokenizer.rules
    if isinstance(rules, BasicRules) and rules.slow:
        known = ", ".join(f"U+{ord(character):04X}" for character in described.other_characters)
        return (
            "`tokenizer.json` gives the ids of bertsmith, but for rare characters: those that "
            f"Unicode {unicodedata.unidata_version} does not assign (bertsmith drops them, "
            "compiled tokenizers read an unknown word), marks and punctuation that are others in "
            "the tables of the compiled tokenizers, and the ideographs from U+2B820 to U+2B91F, "
            "which these do not part. "
            + (f"The vocabulary has these: {known}." if known else "The vocabulary has none.")
        )
    if isinstance(rules, UnigramRules) and rules.compiled is None and not rules.keep_accents:
        return (
            "`tokenizer.json` gives the ids of bertsmith, but where marks are vowel signs, as in "
            "Hindi: compiled tokenizers drop those too, bertsmith only accents."
        )
    return ""


def int8_section(rows: Sequence[Sequence[str]], judged: str, target: Target) -> str:
    """Return the section of README.md on the int8 variant, `rows` being a table with its head."""
    usage = (
        "`onnx/model_quantized.onnx`, taken with `dtype: 'q8'`,"
        if target == "transformers.js"
        else "`model_quantized.onnx`, opened in the same way,"
    )
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    lines = [
        "",
        "## int8",
        "",
        f"{usage} is the model with int8 weights and products. Both were measured on the machine "
        f"that wrote them; {judged}:",
        "",
        head,
        f"|{'---|' * len(rows[0])}",
        *body,
        "",
        "Products have one scale for the whole input, so the outputs for a text differ a little "
        "with the texts beside it in a batch.",
        "",
    ]
    return "\n".join(lines)


def _shape(config: ModelConfig) -> str:
    return "(batch, choices, length)" if config.predicts == "choice" else "(batch, length)"


def _meaning(described: Described, name: str) -> str:
    """Return the shape and the meaning of an output."""
    config = described.config
    if name != "logits":
        return _OUTPUTS[name].format(hidden=config.encoder.hidden, width=described.width)
    many = f"{len(config.labels)}"
    match config.predicts:
        case "class":
            return f"(batch, {many}), before a softmax"
        case "classes":
            return f"(batch, {many}), before a sigmoid each"
        case "number" if config.labels == RELEVANCE:
            return f"(batch, {many}), before a sigmoid"
        case "number":
            return f"(batch, {many}), the numbers themselves"
        case "tags":
            return f"(batch, length, {many}), before a softmax a token"
        case "choice":
            return "(batch, choices), before a softmax"
    if config.replaced_tokens:
        return "(batch, length), above 0 for tokens that were replaced"
    if config.masked_lm:
        return f"(batch, length, {config.encoder.vocabulary}), before a softmax a token"
    return "(batch, 2): is the next text, is a random one"


def _example(described: Described) -> str:
    """Return a few lines of code that run the model."""
    in_node = described.target == "transformers.js"
    language, code = ("js", _javascript(described)) if in_node else ("python", _python(described))
    remark = ", as a file `ask.mjs` for `node ask.mjs`" if in_node else ""
    if in_node and (not _NAME.fullmatch(described.name) or _NOT_IN_NAME.search(described.name)):
        remark += (
            " (rename the folder first, here and in the file: the library loads names of letters, "
            "digits, `_`, single `-` and single `.`)"
        )
    lines = [
        f"In this folder, after `{_INSTALL[described.target]}`{remark}:",
        "",
        f"```{language}",
        *code,
        "```",
        "",
    ]
    return "\n".join(lines)


def _texts(described: Described) -> list[Any]:
    """Return two texts, or pairs of texts, as the model reads them."""
    if described.config.predicts == "span":
        return [("Who came?", "Ann came home."), ("Where is she?", "Ann, who came, is at home.")]
    if described.config.predicts == "choice":
        return [("A text.", "One choice."), ("A text.", "Another choice."), ("A text.", "A third.")]
    if described.pairs:
        return [("A text.", "The one beside it."), ("Another text.", "And a longer one beside it.")]
    if described.config.masked_lm and not described.config.encoder.causal:
        mask = described.tokenizer.vocabulary[described.tokenizer.mask_id]
        return [f"A {mask} text.", f"Another, {mask} one."]
    return ["A text.", "Another, longer one."]


def _python(described: Described) -> list[str]:
    """Return lines of Python."""
    config, target = described.config, described.target
    trained = config.preprocessing
    side = ', direction="left"' if trained is not None and trained.long == "tail" else ""
    names = input_names(config)
    text = _prompted(described, ".lower()")
    argument = "texts" if text == "text" else f"[{text} for text in texts]"
    outputs = described.printed
    lines = list(_OPEN[target])
    # one text with its choices is one row of the batch
    before, after = ("[[", "]]") if config.predicts == "choice" else ("[", "]")
    if target == "onnx":
        lines.append(f"{_unpacked(outputs)} = session.run({_string(outputs)}, inputs)")
    elif target == "openvino":
        lines += [f'{name} = results["{name}"]' for name in outputs]
    else:
        lines.append(f"    {_unpacked(described.outputs)} = model(**tensors)")
    return [
        "import numpy as np",
        f"import {_MODULES[target]}",
        "from tokenizers import Tokenizer",
        "",
        f"texts = {_string(_texts(described))}",
        *_spaced_in_python(described),
        'tokenizer = Tokenizer.from_file("tokenizer.json")',
        f"tokenizer.enable_truncation({described.longest}{side})",
        "tokenizer.enable_padding()",
        f"encoded = tokenizer.encode_batch({argument})",
        "inputs = {",
        *(
            f'    "{name}": np.array({before}text.{_COLUMNS[name]} for text in encoded{after}),'
            for name in names
        ),
        "}",
        *lines,
        f"print({', '.join(outputs)})",
    ]


def _spaced_in_python(described: Described) -> list[str]:
    """Return lines that put single spaces in place of white space.

    WordPiece, too, would remove some of it, such as form feeds, and join the words beside it.
    """
    spaced = 'texts = [" ".join(text.split()) for text in texts]'
    if described.config.predicts == "span":
        # a context is read as it is
        spaced = 'texts = [(" ".join(text.split()), context) for text, context in texts]'
    elif described.pairs:
        spaced = 'texts = [tuple(" ".join(text.split()) for text in pair) for pair in texts]'
    return ["# bertsmith reads white space as single spaces", spaced]


def _prompted(described: Described, lower: str) -> str:
    """Return the expression of a text with its prompt, lower-cased by a method if needed."""
    if described.sentence is None:
        return "text"
    prompt = described.sentence.prompt(None)
    text = f"({_string(prompt)} + text)" if prompt else "text"
    return text + lower * (described.sentence.lowercase and not described.tokenizer.lowercase)


def _string(value: Any) -> str:  # noqa: ANN401
    """Return strings, and lists of them, as they are written in both languages."""
    return json.dumps(value, ensure_ascii=False)


def _unpacked(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


def _javascript(described: Described) -> list[str]:
    """Return lines for node: by a pipeline, or by the model if it has none."""
    name, texts, by_pipeline = _string(described.name), _texts(described), _pipeline(described)
    local = ["env.allowRemoteModels = false;", "env.localModelPath = '..';"]
    if by_pipeline is not None:
        pipeline, argument = by_pipeline
        # of a tensor the numbers
        shown = f"await ask({argument})"
        shown = f"({shown}).tolist()" if pipeline == "feature-extraction" else shown
        return [
            "import { env, pipeline } from '@huggingface/transformers';",
            *local,
            _SPACED_IN_NODE,
            f"const ask = await pipeline('{pipeline}', {name}, {{ dtype: 'fp32' }});",
            f"console.log({shown});",
        ]
    outputs, text = described.printed, _prompted(described, ".toLowerCase()")
    argument = "texts" if text == "text" else f"texts.map((text) => {text})"
    options = f"padding: true, truncation: true, max_length: {described.longest}"
    if described.pairs:
        # a context is read as it is
        spaced = "" if described.config.predicts == "span" else ".map(spaced)"
        options = f"text_pair: {_string([other for _, other in texts])}{spaced}, {options}"
        texts = [text for text, _ in texts]
    return [
        "import { AutoModel, AutoTokenizer, env } from '@huggingface/transformers';",
        *local,
        _SPACED_IN_NODE,
        f"const tokenizer = await AutoTokenizer.from_pretrained({name});",
        f"const model = await AutoModel.from_pretrained({name}, {{ dtype: 'fp32' }});",
        f"const texts = {_string(texts)}.map(spaced);",
        f"const inputs = await tokenizer({argument}, {{ {options} }});",
        *[_ONE_ROW_IN_NODE] * (described.config.predicts == "choice"),
        f"const {{ {', '.join(outputs)} }} = await model(inputs);",
        f"console.log({', '.join(f'{output}.tolist()' for output in outputs)});",
    ]


def _pipeline(described: Described) -> tuple[str, str] | None:
    """Return the pipeline for a model and its arguments; None if there is none."""
    config, text = described.config, _texts(described)[0]
    family, predicts = config.encoder.family, config.predicts
    if predicts == "span" and (family, predicts) not in _NO_PIPELINE:
        question, context = map(_string, text)
        return "question-answering", f"spaced({question}), {context}"
    if described.pairs or described.sentence is not None or config.encoder.causal:
        return None
    text = f"spaced({_string(text)})"
    if predicts in _PIPELINES and (family, predicts) not in _NO_PIPELINE:
        every = ", { top_k: null }" if predicts == "classes" else ""
        return _PIPELINES[predicts], text + every
    if predicts is None and config.masked_lm:
        return "fill-mask", text
    if predicts is None and not config.pretraining_heads:
        return "feature-extraction", f"{text}, {{ pooling: 'mean' }}"
    return None
