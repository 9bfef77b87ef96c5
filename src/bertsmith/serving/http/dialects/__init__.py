"""The shapes in which clients ask: OpenAI's, Cohere's, text-embeddings-inference's, and our own.

`service` is what they share: which model is meant, the question to the gateway, marks of what was
truncated. Each other module is a dialect: a table of its endpoints and a function for each.
"""
