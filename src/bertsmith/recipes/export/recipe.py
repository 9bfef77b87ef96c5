"""Exporting a model folder: written, compared with the engine, and refused where it differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertsmith.core.errors import ConfigError
from bertsmith.core.files import canonical, has_utf8_name, name_is_taken, write_json
from bertsmith.core.log import amount, say
from bertsmith.core.ownership import claimed_output, new_folder
from bertsmith.engine.config import FULL_PRECISION, Number
from bertsmith.engine.predictor import Predictor
from bertsmith.engine.prepared import prepare_model
from bertsmith.hub.models import model_folder
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model
from bertsmith.recipes.export.card import Described, card, int8_section
from bertsmith.recipes.export.config import ExportConfig, Target
from bertsmith.recipes.export.graph import PaddedModel
from bertsmith.recipes.export.program import (
    DATA_SUFFIX,
    ONNX_FILE,
    QUANTISED_FILE,
    exported_program,
    import_onnxruntime,
    require_packages,
    write_onnx,
    write_openvino,
    write_torch,
)
from bertsmith.recipes.export.runtimes import (
    Comparison,
    ExportedModel,
    compare,
    open_exported,
    open_onnx,
    output_file,
)
from bertsmith.recipes.precision_gate import (
    Gate,
    MeasuredPrecision,
    by_precision,
    judged_answering,
    loss_note,
    measure_precisions,
    read_gate,
    refuse_slow_or_worse,
    show_measurements,
    table_rows,
)
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.folder.files import COMPILED_FILE, json_bytes, read_json
from bertsmith.tokens.learning.unigram import BLANKS
from bertsmith.tokens.normalisation import UnigramRules, compiled
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.wordpiece import CONTINUES
from bertsmith.weights.config_json import hub_config
from bertsmith.weights.folder import CARD_FILE, CONFIG_FILE, load_as, load_model, read_config
from bertsmith.weights.formats.catalog import format_of
from bertsmith.weights.sentence_folder import (
    SentenceSettings,
    read_sentence_folder,
    write_sentence_files,
)
from bertsmith.weights.versions import FolderVersion

_BLANK_STEP = {"type": "Replace", "pattern": {"Regex": f"[{''.join(BLANKS)}]"}, "content": " "}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A model folder that has been read."""

    model: Model
    tokenizer: Tokenizer
    sentence: SentenceSettings | None
    network: Path
    version: FolderVersion

    @classmethod
    def read(cls, name: Path) -> Source:
        """Return the model of a folder, or of `hub:owner/name`."""
        folder = model_folder(name)
        version = FolderVersion.of(folder)
        sentence = read_sentence_folder(folder)
        network = folder if sentence is None else sentence.network
        if read_config(network).predicts is not None:
            # the head's output is wanted, and not a vector
            sentence = None
        model, tokenizer = _load(network, vectors=sentence is not None)
        return cls(
            model=model, tokenizer=tokenizer, sentence=sentence, network=network, version=version
        )


def _load(network: Path, *, vectors: bool) -> tuple[Model, Tokenizer]:
    """Return the model of a folder and its tokenizer.

    For `vectors` it has no heads of pre-training: libraries that train sentence encoders keep some
    that they do not use.
    """
    config = read_config(network)
    if not (vectors and config.pretraining_heads):
        return load_model(network)
    bare = replace(config, masked_lm=False, next_sentence=False, replaced_tokens=False)
    return load_as(network, bare)


def export(config: ExportConfig) -> dict[str, Any]:
    """Write a model for another runtime, and compare it with the engine before it takes its name.

    Raises `ConfigError` for a name that is taken or not UTF-8, and for an int8 that is not faster
    or not as good, `MissingExtra`, `ModelFolderError` for what differs from the engine by more than
    1e-5, and what `load_model` raises.
    """
    require_packages(config.to)
    # they are given the whole path
    if not has_utf8_name(out := canonical(config.out)):
        raise ConfigError(
            f"--out is {str(out)!r}, which is not UTF-8",
            remedy="choose another name: the libraries that write it cannot open this one",
        )
    with claimed_output(config.out):
        if name_is_taken(config.out):
            raise ConfigError(f"--out is {config.out}, which exists", remedy="choose another name")
        return _export(config)


def _export(config: ExportConfig) -> dict[str, Any]:
    """Write and compare."""
    source = Source.read(config.model)
    if reason := _no_class(source.model.config, config.to):
        raise ConfigError(f"not for transformers.js: {reason}", remedy="use --to onnx")
    # before the model is written, which takes longer than to find a mistake
    gate, tested = None, ""
    if config.precision == "int8":
        gate = read_int8_gate(config, source.model.config, source.tokenizer, source.sentence)
    padded = PaddedModel(source.model, source.sentence)
    figures: dict[str, Any] = {"to": config.to, "outputs": padded.outputs}
    with new_folder(config.out) as fresh:
        _write(padded, config.to, fresh)
        comparison = _compared(source, config.to, fresh, padded.outputs)
        if gate is not None:
            measured = _add_int8(config, gate, source, output_file(fresh, config.to))
            figures["int8"] = gate.counts | {"precisions": by_precision(measured)}
            judged = "; ".join(filter(None, (gate.judged, loss_note(measured))))
            tested = int8_section(table_rows(measured, gate), judged, config.to)
        about = Described(
            config=source.model.config, tokenizer=source.tokenizer, sentence=source.sentence,
            target=config.to, name=config.out.absolute().name,
        )  # fmt: skip
        _write_settings(source, config.to, fresh, longest=about.longest)
        about = replace(about, other_characters=other_characters(fresh, source.tokenizer))
        (fresh / CARD_FILE).write_text(card(about, comparison) + tested, encoding="utf-8")
        sizes = {
            path.relative_to(fresh).as_posix(): path.stat().st_size
            for path in sorted(fresh.rglob("*"))
            if path.is_file()
        }
    for name, size in sizes.items():
        say(f"  {name:<40} {amount(size, 'B')}")
    say(
        f"{config.out}: {', '.join(padded.outputs)}, at most {comparison.difference:.1e} from the "
        f"engine's in {comparison.batches} batches of up to {comparison.longest:,} tokens"
    )
    say(f"next: {config.out / CARD_FILE} shows how to use it")
    return figures | {"difference": comparison.difference, "files": sizes}


def _no_class(config: ModelConfig, target: Target) -> str | None:
    """Return why no class of transformers.js loads a model; None where one does."""
    if target != "transformers.js" or format_of(config) != "bertsmith":
        return None
    return "its wiring is not that of a published family, so its model_type is bertsmith"


def _write(padded: PaddedModel, target: Target, folder: Path) -> None:
    """Write the file of a target into a folder that is being made."""
    path = output_file(folder, target)
    path.parent.mkdir(exist_ok=True)
    program = exported_program(padded)
    if target == "torch-export":
        write_torch(program, path)
    elif target == "openvino":
        with TemporaryDirectory(dir=folder) as between:
            write_onnx(program, padded, Path(between) / ONNX_FILE)
            longest = padded.config.encoder.longest
            write_openvino(Path(between) / ONNX_FILE, path, longest=longest)
    else:
        write_onnx(program, padded, path)


def _compared(source: Source, target: Target, folder: Path, outputs: Sequence[str]) -> Comparison:
    """Compare the written files with the engine, which loads a separate model."""
    model, _ = _load(source.network, vectors=source.sentence is not None)
    engine = prepare_model(model, FULL_PRECISION).model
    # else the difference would be that of two models
    source.version.check()
    runtime = open_exported(output_file(folder, target), target, outputs)
    return compare(runtime, engine, source.tokenizer, source.sentence)


def _write_settings(source: Source, target: Target, folder: Path, *, longest: int) -> None:
    """Write config.json and the tokenizer's files, and those of a sentence-transformers folder."""
    model, tokenizer = source.model.config, source.tokenizer
    tokenizer.save(folder, longest=longest, segments=model.encoder.segments > 1)
    adapt_tokenizer(folder, tokenizer, target)
    ends = (tokenizer.cls_id, tokenizer.sep_id)
    settings = hub_config(model, pad_id=tokenizer.pad_id, ends=ends)
    model_file = output_file(folder, target)
    if target == "transformers.js" and model_file.with_name(model_file.name + DATA_SUFFIX).exists():
        settings["transformers.js_config"] = {"use_external_data_format": {ONNX_FILE: True}}
    write_json(folder / CONFIG_FILE, settings)
    if source.sentence is not None:
        write_sentence_files(folder, source.sentence, model.encoder)


def adapt_tokenizer(folder: Path, tokenizer: Tokenizer, target: Target) -> None:
    """Rewrite steps in a folder's tokenizer.json where programs differ from the engine.

    A WordPiece vocabulary that keeps accents reads composed text (NFC), which the file of
    `Tokenizer.save` leaves to the slow tokenizer. transformers.js does not look at replacement
    rules and takes NFKC instead, so those that replace white space alone become an expression.
    Where the tokenizer gives no segments, the template for pairs has none either.
    """
    rules, path = tokenizer.rules, folder / COMPILED_FILE
    composes = isinstance(rules, BasicRules) and rules.slow and not rules.strips
    blanks = isinstance(rules, UnigramRules) and rules.charsmap == compiled(BLANKS)
    replaces = blanks and target == "transformers.js"
    flat = isinstance(rules, BasicRules | UnigramRules) and not rules.segments
    if not (composes or replaces or flat):
        return
    data = read_json(path)
    normalizer: dict[str, Any] = data["normalizer"] or {}
    if composes:
        data["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, normalizer]}
    if replaces:
        normalizer["normalizers"] = [
            _BLANK_STEP if step["type"] == "Precompiled" else step
            for step in normalizer["normalizers"]
        ]
    if flat:
        for step in data["post_processor"]["pair"]:
            for part in step.values():
                part["type_id"] = 0
    path.write_bytes(json_bytes(data))


def other_characters(folder: Path, tokenizer: Tokenizer) -> str:
    """Return the characters of a WordPiece vocabulary to which tokenizer.json gives other ids.

    Each is read between two letters, by the compiled tokenizer and by ours.
    """
    from tokenizers import Tokenizer as CompiledTokenizer

    if not isinstance(tokenizer.rules, BasicRules):
        return ""
    bare = {piece.removeprefix(CONTINUES) for piece in tokenizer.vocabulary}
    characters = sorted(character for character in bare if len(character) == 1)
    compiled = CompiledTokenizer.from_str((folder / COMPILED_FILE).read_text(encoding="utf-8"))
    compiled.no_padding()
    texts = [f"a{character}a" for character in characters]
    found = compiled.encode_batch(texts, add_special_tokens=False)
    pairs = zip(characters, found, tokenizer.encode(texts), strict=True)
    return "".join(character for character, other, ids in pairs if other.ids != ids.tolist())


# an int8 variant


def read_int8_gate(
    config: ExportConfig,
    model: ModelConfig,
    tokenizer: Tokenizer,
    sentence: SentenceSettings | None,
) -> Gate:
    """Read the texts and labels by which an int8 variant is judged; raises what that raises.

    Raises `ModelFolderError` for a model with heads of pre-training only.
    """
    assert config.calibrate is not None
    stand_in = ExportedModel(model, dict, pad_id=tokenizer.pad_id)
    if sentence is not None:
        # the file itself pools and maps
        sentence = replace(sentence, pool=("cls",), after=())
    answering = judged_answering(stand_in, tokenizer, sentence, config.length, where=config.model)
    return read_gate(answering, model, config.calibrate, config.dev, config.reading)


def _add_int8(
    config: ExportConfig, gate: Gate, source: Source, exact: Path
) -> list[MeasuredPrecision]:
    """Write the int8 variant of a file beside it, and return what was measured of both.

    onnxruntime quantises the weights by output, and what goes into each product by a scale for all
    of it, when it runs. Whether that is faster here and as good is measured through onnxruntime, on
    the user's texts and labels, with the readers, decoders and scores of the task, or by the
    vectors. Raises `ConfigError`, after the table, where it is not faster than the exact file or
    not as good as the gate asks.
    """
    model, pad_id = source.model.config, source.tokenizer.pad_id
    quantised = exact.with_name(QUANTISED_FILE)
    _quantise(exact, quantised)
    files: dict[Number, Path] = {"fp32": exact, "int8": quantised}
    predictors = {
        precision: Predictor(
            model=ExportedModel(model, open_onnx(path, config.threads), pad_id=pad_id),
            answering=gate.answering,
        )
        for precision, path in files.items()
    }
    measured = measure_precisions(predictors, gate)
    show_measurements(measured, gate)
    refuse_slow_or_worse(measured, "export")
    return measured


def _quantise(exact: Path, quantised: Path) -> None:
    """Write a file of ONNX with int8 products."""
    import logging

    quantization = import_onnxruntime("onnxruntime.quantization")
    level = logging.root.level
    # it advises steps that change nothing here
    logging.root.setLevel(logging.ERROR)
    try:
        quantization.quantize_dynamic(
            exact,
            quantised,
            per_channel=True,
            # with signed weights its products saturate on x86 chips that have no VNNI
            weight_type=quantization.QuantType.QUInt8,
            extra_options={"MatMulConstBOnly": True},
        )
    finally:
        logging.root.setLevel(level)
