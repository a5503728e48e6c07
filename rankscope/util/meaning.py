"""What the keys of JSON mean, as annotations of structs."""

from msgspec import Meta


def says(meaning: str) -> Meta:
    """The meaning of a key: a phrase in Markdown, in lower case and without a full stop."""
    return Meta(description=meaning)
