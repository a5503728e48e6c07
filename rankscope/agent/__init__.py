"""rankscope as a tool of an assistant: a server of the Model Context Protocol (`rankscope mcp`).

`folders` says which paths may be named, `questions` which tools there are, `answers` what each
answers, `shorten` keeps the answers small, and `server` speaks the protocol. Only `server` needs
the package `mcp`.
"""
