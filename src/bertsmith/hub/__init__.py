"""Download models from a model hub and upload them, only where the user names one there.

`models` resolves a name to a folder, downloading it if needed; `transfers` downloads and uploads
the files that make up a model through the library behind `client`.
"""
