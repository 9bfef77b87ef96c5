"""Models behind HTTP: a process that speaks it, one that opens the models, its forks that compute.

`http` is what clients see: routes, dialects, limits, the page. `dispatch` queues what they ask and
hands batches to workers; `models` is what a worker makes of model folders. `messages` go between
the kinds of process, `processes` are how they are started, `log` is a standard error whose reader
may stall, `refusals` say why a request is not answered, and `server` runs it all on granian until a
signal ends it.

The process that speaks HTTP imports neither torch nor a model. Texts are encoded in the workers:
tokenising a long text would hold up everybody's requests in a process with one event loop.

By default there are two workers, which share the processor's cores: while one computes a long text
the other answers short ones.
"""
