"""Human-readable reports of runs.

`page` builds a self-contained page in HTML (of `report_page.html`) with the figures of `curves`,
`training` adds the curves of a training, and `model_card` writes the README.md of a model folder.
`inspection` is a separate page (`inspection_page.html`), with sections by `annotations` and
`layers`; `drawing` makes its figures.
"""
