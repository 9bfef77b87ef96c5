"""A fine-tuned model asked (`recipe`) and scored (`evaluate`), row by row of a user's file."""
