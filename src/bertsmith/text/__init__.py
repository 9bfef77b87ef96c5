"""Files become documents and labelled examples."""
