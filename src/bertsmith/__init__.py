"""From your own text to your own served BERT, on one machine, inside a time budget you set."""

__version__ = "0.1.0"
