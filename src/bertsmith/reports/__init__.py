"""Human-readable reports of runs.

`page` builds a self-contained page in HTML (of `report_page.html`), `training` adds the curves of a
training, and `model_card` writes the README.md of a model folder.
"""
