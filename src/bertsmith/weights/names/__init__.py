"""The names of tensors, ours and those of `transformers`: a table a family, read both ways."""
