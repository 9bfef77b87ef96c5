"""Models behind HTTP: one process that speaks it, and worker processes that compute.

A request's handler: `limits` bounds what a client may send; a `dialect` (OpenAI, text-embeddings-
inference, our own) checks it against a `schema` and turns it into `messages.Input`s; `gateway`
puts these into the `queue` and hands batches to workers (`workers`); a worker (`worker`) encodes a
batch while the engine computes the one before, and answers. `served` is what a worker makes of a
model folder: its kind, and how each of its tasks is asked and answered. `app` joins the routes,
`openapi` describes them, `page` shows them to people, `metrics` counts, and `server` runs it all on
granian until a signal ends it.

The process that speaks HTTP imports neither torch nor a model. Texts are encoded in the workers:
tokenising a long text would hold up everybody's requests in a process with one event loop. There
the queue counts tokens by an estimate from the length of the text, which each answer corrects.

By default there are two workers, which share the processor's cores: while one computes a long text
the other answers short ones.
"""
