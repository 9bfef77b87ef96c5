"""Models from and to a model hub, only where the user names one there.

`models` turns a name into a folder, fetching it if need be; `transfers` brings files here and
there, `client` is the library that does it, `files` says which files make a model.
"""
