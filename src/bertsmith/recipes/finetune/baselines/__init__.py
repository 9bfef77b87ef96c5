"""What a fine-tuned model is measured against: TF-IDF, static vectors, frozen layers."""
