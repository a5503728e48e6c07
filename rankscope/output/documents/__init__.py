"""The JSON documents: a module per command has the shape of its document, and fills it.

The structs say all that is published of the documents: the JSON Schema is made of them, and of the
schema the tables of CONTRACT.md and the entries of `rankscope explain KEY`.
"""
