"""The parts of `learning_per_minute.py`: the text, both contestants, the clock and the referee."""
