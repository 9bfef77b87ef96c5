"""The folders of XLM-RoBERTas in `transformers`: RoBERTa's, read by other classes."""

from __future__ import annotations

from dataclasses import replace

from bertsmith.weights.formats.roberta import ROBERTA

XLM_ROBERTA = replace(ROBERTA, classes="XLMRoberta")
