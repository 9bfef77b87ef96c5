"""Distillation: a small student is taught by a larger model, its teacher.

`recipe` chooses the kind of run. `general` teaches a student on a store, with the machinery of
pre-training; `task` reads labelled examples, and `trainings` teaches it on them, as a fine-tuning
run with another supervision; `static` makes vectors of pieces. A `student` is a size, with the
teacher's layers where it is as wide; `methods` choose which outputs of the teacher are read and
which terms are trained; `teacher` computes these outputs, or reads them from the disk. A
`transfer_set` has rows beside the labelled ones. `speed` is measured in the engine, and may choose
the student's size; `report` compares teacher, students and baselines.
"""
