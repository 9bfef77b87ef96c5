"""The ablations of Devlin et al. 2018, and some of its design choices, at a scale of minutes.

cells       what is trained: each experiment a table of cells, with the paper's figures beside them
tasks       what every cell is fine-tuned on: subsets of real data sets, and where they are written
position    [CLS] at another position than the first
training    one cell with one seed: pre-trained, fine-tuned, its results kept stage by stage
showing     tables with the mean and interval over seeds, for terminals and for the page
"""
