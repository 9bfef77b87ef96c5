"""The processes of benchmarks/answering: what they measure reports to nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# as OpenVINO and NNCF begin
BEGINS = """
try:
    from openvino_telemetry import Telemetry
except ImportError:
    pass
"""


def test_openvino_is_measured_without_its_telemetry(tmp_path: Path) -> None:
    (tmp_path / "openvino.py").write_text(BEGINS, encoding="utf-8")
    (tmp_path / "openvino_telemetry.py").write_text(
        f"open({str(tmp_path / 'reported')!r}, 'w')\nTelemetry = 1\n", encoding="utf-8"
    )
    paths = (str(tmp_path), str(ROOT / "benchmarks"))
    command = [sys.executable, "-m", "answering.worker", "openvino fp32", "model", "work", "1"]
    (tmp_path / "texts.json").write_text('["a text"]', encoding="utf-8")
    done = subprocess.run(
        command,
        input=json.dumps({"do": "open", "texts": str(tmp_path / "texts.json")}),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    # nothing but the import succeeds
    assert "failed" in json.loads(done.stdout), done.stderr
    assert not (tmp_path / "reported").exists()
