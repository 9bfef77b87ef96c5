"""Text becomes token ids, with a vocabulary learned from a corpus."""
