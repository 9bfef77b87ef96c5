"""Models become folders in the ecosystem's own layout, and back.

`folder` saves and loads: `formats` has the record of each family's folders, by which `config_json`
translates settings and `names` tensor names; `reading` checks a folder before anything is
allocated, and `tensors` reads and writes safetensors. `sentence_folder` is the layout of
sentence-transformers; `versions` notices a folder that was replaced; `wrappers` knows what training
programs put around the names of tensors; `conversion` brings other formats here.
"""
