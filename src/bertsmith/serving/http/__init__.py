"""The way of a request in and out.

`limits` bounds what a client may send; one of the `dialects` (OpenAI, text-embeddings-inference,
our own) checks it against the `schema` and turns it into `messages.Input`s for the gateway. `app`
joins the routes, `openapi` describes them, `page` shows them to people, `metrics` counts, and
`http_server` puts the application behind granian.
"""
