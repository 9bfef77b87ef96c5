"""The README.md of an exported folder: what is in it, and how it is asked."""

from __future__ import annotations

from collections.abc import Sequence

from bertsmith.core import VERSION
from bertsmith.core.printable import counted, markdown
from bertsmith.network.config import ModelConfig
from bertsmith.recipes.export.checking import BOUND, Comparison
from bertsmith.recipes.export.config import Target
from bertsmith.recipes.export.graph import input_names

_INPUTS = {
    "input_ids": "token ids",
    "attention_mask": "1 for tokens, 0 for padding, on either side",
    "token_type_ids": "0 for the first text, 1 for the second of a pair",
}
_OUTPUTS = {
    "last_hidden_state": "(batch, length, {hidden}), a vector a token",
    "pooler_output": "(batch, {hidden}), the pooler's vector",
    "sentence_embedding": "(batch, width), the vector of a text, pooled as the folder says",
    "start_logits": "(batch, length), where the answer begins",
    "end_logits": "(batch, length), the last token of the answer",
    "seq_relationship_logits": "(batch, 2): is the next text, is a random one",
    "sop_logits": "(batch, 2): in order, swapped",
}
_PYTHON = """\
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.enable_truncation({longest})
tokenizer.enable_padding()
"""
_FEED = """\
encoded = tokenizer.encode_batch(["A text.", "Another, longer one."])
inputs = {{
{inputs}}}
"""
_COLUMNS = {
    "input_ids": "ids",
    "attention_mask": "attention_mask",
    "token_type_ids": "type_ids",
}
_RUN: dict[Target, tuple[str, str]] = {
    "onnx": (
        "import numpy as np\nimport onnxruntime\n",
        'session = onnxruntime.InferenceSession("model.onnx")\nprint(session.run(None, inputs))\n',
    ),
    "openvino": (
        "import numpy as np\nimport openvino\n",
        "# without the hint processors with bf16 compute in it\n"
        'settings = {"INFERENCE_PRECISION_HINT": "f32"}\n'
        'model = openvino.Core().compile_model("openvino_model.xml", "CPU", settings)\n'
        "print(model(inputs))\n",
    ),
    "torch-export": (
        "import numpy as np\nimport torch\n",
        'model = torch.export.load("model.pt2").module()\n'
        "print(model(**{name: torch.from_numpy(each) for name, each in inputs.items()}))\n",
    ),
}
_PIPELINES = {
    "class": "text-classification",
    "classes": "text-classification",
    "number": "text-classification",
    "tags": "token-classification",
    "span": "question-answering",
}


def card(
    config: ModelConfig,
    target: Target,
    outputs: Sequence[str],
    comparison: Comparison,
    *,
    longest: int,
) -> str:
    """Return the text of README.md; `longest` tokens of a text are read in its example."""
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
        *(f"| {name} | {_meaning(config, name)} |" for name in outputs),
        "",
        "Batch and length are free. After writing, the file was compared with the engine on "
        f"{counted(comparison.batches, 'batch', 'batches')} of up to {comparison.longest:,} "
        f"tokens: at most {comparison.difference:.1e} apart, in parts of the largest value "
        f"({BOUND:.0e} is allowed).",
        "",
    ]
    if config.labels:
        names = ", ".join(map(markdown, config.labels))
        lines += [f"Labels, in the order of the outputs: {names}.", ""]
    return "\n".join([*lines, ""]) + _example(config, target, longest)


def int8_section(rows: Sequence[Sequence[str]], judged: str, target: Target) -> str:
    """Return what README.md says of the int8 variant, `rows` being a table with its head."""
    how = (
        "`onnx/model_quantized.onnx`, taken with `dtype: 'q8'`,"
        if target == "transformers.js"
        else "`model_quantized.onnx`, opened in the same way,"
    )
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    lines = [
        "",
        "## int8",
        "",
        f"{how} is the model with weights and products of int8. Both were measured on the machine "
        f"that wrote them; {judged}:",
        "",
        head,
        f"|{'---|' * len(rows[0])}",
        *others,
        "",
    ]
    return "\n".join(lines)


def _shape(config: ModelConfig) -> str:
    return "(batch, choices, length)" if config.predicts == "choice" else "(batch, length)"


def _meaning(config: ModelConfig, name: str) -> str:
    """Return the shape and the meaning of an output."""
    if name != "logits":
        return _OUTPUTS[name].format(hidden=config.encoder.hidden)
    many = f"{len(config.labels)}"
    match config.predicts:
        case "class":
            return f"(batch, {many}), before a softmax"
        case "classes":
            return f"(batch, {many}), before a sigmoid each"
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


def _example(config: ModelConfig, target: Target, longest: int) -> str:
    """Return a few lines of code that ask the model."""
    if target == "transformers.js":
        return _javascript(config)
    if config.predicts == "choice":
        return ""
    imports, run = _RUN[target]
    inputs = "".join(
        f'    "{name}": np.array([each.{_COLUMNS[name]} for each in encoded]),\n'
        for name in input_names(config)
    )
    code = imports + _PYTHON.format(longest=longest) + _FEED.format(inputs=inputs)
    return f"```python\n{code}{run}```\n"


def _javascript(config: ModelConfig) -> str:
    kind = "fill-mask" if config.masked_lm else "feature-extraction"
    kind = _PIPELINES.get(config.predicts or "", kind)
    return (
        "```js\n"
        "import { env, pipeline } from '@huggingface/transformers';\n"
        "env.allowRemoteModels = false;\n"
        "env.localModelPath = '..';\n"
        f"const ask = await pipeline('{kind}', 'FOLDER', {{ dtype: 'fp32' }});\n"
        "```\n"
    )
