"""Readers of labelled data in common layouts, one module per layout.

Each streams its rows with their lines and recognises its own files.
"""
