"""Students of another width than their teacher, of every family and of a left-to-right teacher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import pipeline

from bertsmith.core.errors import ConfigError
from bertsmith.network.batch import Target, pack
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.objective import Objective
from bertsmith.recipes.distil.config import StudentConfig, TeachingConfig
from bertsmith.recipes.distil.methods import METHODS, check_method, method_terms, with_targets
from bertsmith.recipes.distil.student import (
    NewStudent,
    can_take_token_table,
    student_encoder,
)
from bertsmith.recipes.distil.teacher import TeacherOutputs, outputs_of
from bertsmith.weights.folder import save_model
from families import MODELS, TOKENIZERS, WIRINGS
from parity.comparing import varied

CPU = torch.device("cpu")
TEACHERS: dict[str, ModelConfig] = {
    **{family: MODELS[f"{family}-class"] for family in TOKENIZERS},
    "left to right": WIRINGS["causal-class"],
    "sinusoidal": replace(WIRINGS["before"], masked_lm=False, predicts="class", labels=("a", "b")),
}
# those that have no columns for positions, and those whose tables are as narrow as their teacher's
AT_RANDOM, AS_IT_IS = {"modernbert", "sinusoidal"}, {"albert", "electra"}
REFUSED = {
    "modernbert": {"distilbert", "tinybert"},
    "left to right": {"distilbert", "tinybert"},
}


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Model]]:
    """Teachers whose tokens differ in few directions, as those of trained ones do."""
    folder, found = tmp_path_factory.mktemp("teachers"), {}
    for name, config in TEACHERS.items():
        model = varied(build_model(config, seed=1))
        table = model.encoder.embeddings.tokens.weight
        random = torch.Generator().manual_seed(1)
        shapes = (len(table), 5), (5, table.shape[1])
        factors = [torch.randn(*shape, generator=random) for shape in shapes]
        with torch.no_grad():
            table.copy_(factors[0] @ factors[1])
        save_model(folder / name, model, TOKENIZERS[config.encoder.family])
        found[name] = folder / name, model
    return found


def student_of(folder: Path, teacher: Model, size: str, *, table: bool = True) -> Model:
    layers, width = map(int, size.split("/"))
    given = StudentConfig(student=size, heads=4)
    encoder = student_encoder(teacher.config.encoder, layers, width, given)
    return NewStudent(
        teacher=folder, config=replace(teacher.config, encoder=encoder), layers=(), device=CPU,
        token_table=table,
    )(5)  # fmt: skip


# as narrow as the tables of the ALBERT and of the ELECTRA; and wider than the teacher
@pytest.mark.parametrize("size", ["2/16", "2/24", "2/40"])
@pytest.mark.parametrize("name", TEACHERS)
@torch.no_grad()
def test_it_starts_from_what_its_teacher_knows_of_each_token(
    name: str, size: str, teachers: dict[str, tuple[Path, Model]]
) -> None:
    folder, teacher = teachers[name]
    student, new = (student_of(folder, teacher, size, table=table) for table in (True, False))
    assert can_take_token_table(student.config.encoder) == (name not in AT_RANDOM)
    ours, theirs = student.encoder.embeddings, teacher.encoder.embeddings
    if name in AS_IT_IS:
        for part, value in theirs.state_dict().items():
            same = torch.equal(ours.state_dict()[part], value) if "widen" not in part else True
            assert same, part
        fresh = new.encoder.embeddings.state_dict()["widen.weight"]
        assert torch.equal(ours.state_dict()["widen.weight"], fresh)
    elif name in AT_RANDOM:
        states = zip(student.state_dict().items(), new.state_dict().values(), strict=True)
        assert all(torch.equal(mine, at_random) for (_, mine), at_random in states)
    else:
        alike = {kind: likeness(item, teacher) for kind, item in (("it", student), ("new", new))}
        assert alike["it"] > 0.8
        assert abs(alike["new"]) < 0.3


def likeness(student: Model, teacher: Model) -> float:
    """The correlation of the cosines of ordinary tokens in both tables."""
    ordinary = TOKENIZERS[teacher.config.encoder.family].ordinary_ids
    cosines = []
    for item in (student, teacher):
        rows = item.encoder.embeddings.tokens.weight[torch.from_numpy(ordinary)]
        rows = torch.nn.functional.normalize(rows - rows.mean(0), dim=1)
        cosines.append((rows @ rows.T)[~torch.eye(len(rows), dtype=torch.bool)])
    return float(torch.corrcoef(torch.stack(cosines))[0, 1])


@pytest.mark.parametrize("name", TEACHERS)
def test_each_method_teaches_it_or_names_one_that_does(
    name: str, teachers: dict[str, tuple[Path, Model]]
) -> None:
    folder, teacher = teachers[name]
    student = student_of(folder, teacher, "2/16").train()
    encoders, refused = (teacher.config.encoder, student.config.encoder), set()
    random = np.random.default_rng(0)
    ids = [random.integers(5, 99, length).astype(np.int32) for length in (9, 13, 4)]
    segments = [np.zeros(len(id_), np.int8) for id_ in ids]
    labels = Target(positions=torch.arange(3), labels=torch.tensor([0, 1, 0]), by_sequence=True)
    for method in METHODS:
        try:
            check_method(method, *encoders, TeachingConfig())
        except ConfigError as error:
            refused.add(method)
            named = [n for n in METHODS if n in error.remedy.rpartition("--method ")[2]]
            assert named
            for other in named:
                check_method(other, *encoders, TeachingConfig())
            continue
        taught = method_terms(method, *encoders, TeachingConfig(), "class", seed=0)
        wanted = TeacherOutputs(taps=taught.taps, answer="class", precision="fp32")
        for step in taught.steps:
            names = tuple(item for item in step if item != "labels")
            batch = with_targets(pack(ids, segments, {"classify": labels}), names)
            batch = replace(batch, given=outputs_of(teacher, batch, wanted))
            losses = Objective({item: taught.terms[item] for item in names})(student, batch)
            student.zero_grad()
            torch.stack([part.sum for part in losses.parts.values()]).sum().backward()
            gradient = student.encoder.embeddings.tokens.weight.grad
            assert gradient is not None
            assert torch.isfinite(gradient).all()
            assert gradient.abs().sum() > 0
    assert refused == REFUSED.get(name, {"distilbert"})


def test_a_distilbert_answers_in_the_pipelines_of_transformers(
    teachers: dict[str, tuple[Path, Model]],
) -> None:
    """Their BertTokenizer gives segments unless it is told not to, and the model refuses them."""
    folder, _ = teachers["distilbert"]
    told = pipeline("text-classification", model=str(folder), device="cpu")("word1 word2")
    assert told[0]["label"] in TEACHERS["distilbert"].labels
