"""The JSON documents: the module of a command defines the shape of its document, and fills it.

The structs are the only definition of the documents. The JSON Schema is generated from them, and
from the schema the tables of CONTRACT.md and the entries of `rankscope explain KEY`.
"""
