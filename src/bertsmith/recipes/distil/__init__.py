"""Distillation: a small student is taught by a larger model, its teacher.

`recipe` tells a store from labelled examples. `general` teaches a student on a store, with the
machinery of pre-training; `task` teaches it on labelled examples, as trainings of a fine-tuning run
with another supervision. A `student` is a size, with the teacher's layers where it is as wide;
`methods` say what of the teacher is read and which terms are trained; `teacher` runs it, or reads
what it said before from the disk. A `transfer_set` has rows beside the labelled ones. `speed` is
measured in the engine, and may choose the student's size; `report` compares all in the end.
"""
