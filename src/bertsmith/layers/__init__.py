"""The bricks of an encoder."""
