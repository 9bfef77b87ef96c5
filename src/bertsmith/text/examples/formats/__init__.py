"""Labelled data in the layouts that people have: a module a layout.

Each streams its rows with their lines, and knows its own files when it sees them.
"""
