"""The table of verbs, in the order of the help, with examples of each."""

from __future__ import annotations

from bertsmith.cli import verbs
from bertsmith.cli.command import Command, CompletionConfig, Verb, completion_script
from bertsmith.core.output import print_line


def completion() -> Verb:
    """Print a script with which a shell completes verbs, options and their values.

    bash: add this to ~/.bashrc: source <(bertsmith completion bash)
    zsh: add this to ~/.zshrc, after compinit: eval "$(bertsmith completion zsh)"
    fish: bertsmith completion fish > ~/.config/fish/completions/bertsmith.fish
    """

    def run(config: CompletionConfig) -> object:
        script = completion_script(config.shell, COMMANDS)
        for line in script.split("\n"):
            print_line(line, exact=True)
        return script

    return Verb(CompletionConfig, lambda: run)


COMMANDS: dict[str, Command] = {
    "demo": Command(verbs.demo, examples=("", "--minutes 2 --out /tmp/demo --json")),
    "vocab learn": Command(
        verbs.learn_vocabulary,
        examples=("books/ --out vocab", "'news/*.jsonl.gz' --out vocab --size 8000 --cased"),
    ),
    "vocab extend": Command(
        verbs.extend_vocabulary, examples=("model notes/ --add 1000 --out extended",)
    ),
    "prepare": Command(
        verbs.prepare,
        examples=("books/ --vocab vocab --out store", "web.parquet --vocab vocab --out store"),
    ),
    "pretrain": Command(
        verbs.pretrain,
        examples=(
            "store --out run --model mini --minutes 60",
            "store --out run --recipe roberta --model tiny --minutes 20 --gradient-accumulation 2",
            "--out run",
            "store --from model --out run --minutes 60",
        ),
    ),
    "models": Command(verbs.list_models, examples=("", "--json")),
    "finetune": Command(
        verbs.finetune,
        examples=(
            "run/model train.csv --out spam",
            "run/model pairs.tsv --out same --text-column a --text-pair-column b --seeds 3",
            "run/model train.conll --dev dev.conll --out names --grid --minutes 60",
            "run/model train.jsonl --out spam --baselines --curve",
            "run/model train.csv --out spam --side-by-side 2",
            "run/model questions.txt --out kinds --layout label-first",
        ),
    ),
    "glue": Command(
        verbs.glue,
        examples=(
            "run/model --data glue --out glue-run",
            "run/model --data glue --out few --tasks RTE,CoLA",
        ),
    ),
    "compare": Command(verbs.compare, examples=("spam other-spam",)),
    "distil": Command(
        verbs.distil,
        examples=(
            "spam/model train.csv --student 3/384 --out small",
            "spam/model train.csv --student 2/192 --method tinybert,minilm --out smaller",
            "spam/model train.csv --student auto --target 5x --method minilm --out fast",
            "model store --student 4/312 --method minilm --minutes 60 --out general",
            "model store --student 256 --method static --out static",
        ),
    ),
    "predict": Command(
        verbs.predict,
        examples=("spam/model messages.txt", "run/model --top 3 < sentences-with-masks.txt"),
    ),
    "evaluate": Command(verbs.evaluate, examples=("spam/model test.csv",)),
    "score": Command(
        verbs.score,
        examples=(
            "run/model sentences.txt",
            "run/model blimp.jsonl --text-column sentence_good --text-pair-column sentence_bad",
        ),
    ),
    "write": Command(
        verbs.write,
        examples=(
            'run/model --prompt "It was a dark" --length 20',
            "run/model --how gibbs --passes 200 --temperature 0.7 --seed 3",
        ),
    ),
    "explain": Command(
        verbs.explain,
        examples=(
            "spam/model messages.txt --out why.html",
            "names/model dev.conll --methods integrated-gradients,rollout --deletion",
        ),
    ),
    "convert": Command(
        verbs.convert,
        examples=(
            "downloaded/ bert",
            "hub:google-bert/bert-base-uncased bert",
            "uncased_L-2_H-128_A-2/bert_model.ckpt bert-tiny",
            "bert-tiny checkpoint --to tensorflow",
        ),
    ),
    "push": Command(
        verbs.push,
        examples=("spam/model owner/spam --license mit", "run/model owner/bert --dry-run"),
    ),
    "quantize": Command(
        verbs.quantize,
        examples=(
            "spam/model --calibrate texts.txt --dev dev.csv --out spam-int8",
            "minilm --calibrate texts.txt --out minilm-int8",
        ),
    ),
    "export": Command(
        verbs.export,
        examples=(
            "spam/model --to onnx --out spam-onnx",
            "spam/model --to transformers.js --out spam-web",
            "spam/model --to onnx --precision int8 --calibrate texts.txt --dev dev.csv "
            "--out spam-int8",
        ),
    ),
    "embed": Command(
        verbs.embed,
        examples=(
            "minilm questions.txt --out questions.npy",
            "run/model reviews.csv --out reviews.parquet --layer second-to-last --pool cls+mean",
            "run/model lines.txt --out words.npy --layer concat-last-4 --pool word-mean",
        ),
    ),
    "serve": Command(
        verbs.serve,
        examples=(
            "spam/model",
            "minilm names/model --name vectors,names --port 8080",
            "spam/model --check",
        ),
    ),
    "inspect": Command(
        verbs.inspect,
        examples=(
            "run/model texts.txt --out heads.html",
            "run/model treebank.conllu --out relations.html --max-words 40",
            "run/model entities.conll --out entities.html",
        ),
    ),
    "completion": Command(completion, examples=("bash",)),
}
