"""Human-readable reports of runs: self-contained HTML pages, curves, and model cards."""
