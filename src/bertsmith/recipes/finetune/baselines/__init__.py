"""The baselines of a fine-tuned model: TF-IDF, static vectors, frozen layers."""
