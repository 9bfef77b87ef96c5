"""What a model can be fine-tuned for, each kind in a file of its own; table.py lists them."""
