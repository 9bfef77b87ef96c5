from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.core.errors import ConfigError
from bertsmith.core.files import write_json
from bertsmith.engine.features import layer_mix
from bertsmith.network.pooling import LayerMix, ScalarMix
from bounds import close_to_float64


def states(layers: int, tokens: int = 13, hidden: int = 7) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(tokens, hidden, generator=generator) for _ in range(layers)]


def test_a_scalar_mix_is_equation_1_of_peters() -> None:
    mix, given = ScalarMix(4), states(4)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.3, -2.0, 1.5, 0.0]))
        mix.scale.fill_(1.7)
    scores = np.exp(np.array([0.3, -2.0, 1.5, 0.0]))
    expected = 1.7 * np.einsum(
        "l,lth->th", scores / scores.sum(), np.stack([value.double().numpy() for value in given])
    )
    close_to_float64(mix(given), expected)
    learned = mix.learned([0, 2, 3, 5])
    by_file = learned.mixed({0: given[0], 2: given[1], 3: given[2], 5: given[3]})
    close_to_float64(by_file, expected)


def test_a_scalar_mix_starts_as_the_mean() -> None:
    given = states(3)
    mean = torch.stack(given).mean(0)
    close_to_float64(ScalarMix(3)(given), mean)


def test_a_scalar_mix_learns_which_layers_matter() -> None:
    given = states(4, tokens=50)
    wanted = 2.0 * (0.75 * given[1] + 0.25 * given[3])
    mix = ScalarMix(4)
    optimiser = torch.optim.Adam(mix.parameters(), lr=0.1)
    for _ in range(400):
        optimiser.zero_grad()
        (mix(given) - wanted).square().mean().backward()
        optimiser.step()
    learned = mix.learned(range(4))
    assert learned.weights == pytest.approx((0, 0.75, 0, 0.25), abs=0.02)
    assert learned.scale == pytest.approx(2, abs=0.05)


def test_a_learned_mix_is_kept_in_a_file(tmp_path: Path) -> None:
    mix = LayerMix(layers=(0, 2), weights=(0.25, 0.75), scale=1.5)
    path = tmp_path / "mix.json"
    write_json(path, mix.to_dict())
    assert layer_mix(f"mix:{path}", 2) == mix
    with pytest.raises(ConfigError, match="asks for layer 2, and the model has 1"):
        layer_mix(f"mix:{path}", 1)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"layers": [2, 1], "weights": [1, 1]}, "name each once, in order"),
        ({"layers": [1, 1], "weights": [1, 1]}, "name each once, in order"),
        ({"layers": [-1]}, "name each once, in order"),
        ({"layers": []}, "name each once, in order"),
        ({"layers": [0, 1], "weights": [1]}, "1 weight for 2 layers"),
        ({"layers": [0], "weights": [float("inf")]}, "is not a number"),
        ({"layers": [0], "scale": float("nan")}, "is not a number"),
        ({"layers": "all"}, "must be"),
        ({"layers": [0], "gamma": 1}, "unknown setting 'gamma'"),
        ([0, 1], "holds no JSON object"),
    ],
)
def test_a_file_that_is_no_mix_is_refused(tmp_path: Path, said: object, message: str) -> None:
    path = tmp_path / "mix.json"
    path.write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        layer_mix(f"mix:{path}", 12)
