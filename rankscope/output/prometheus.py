"""Numbers in the format of node_exporter's textfile collector."""

from collections.abc import Sequence


def gauge(name: str, meaning: str, samples: Sequence[tuple[str, object]]) -> list[str]:
    """The lines of a gauge; none without samples.

    Args:
        samples: labels, as `labels` writes them, and value.
    """
    lines = [f"{name}{label} {value}" for label, value in samples]
    return [f"# HELP {name} {meaning}", f"# TYPE {name} gauge", *lines] if lines else []


def labels(**named: str | None) -> str:
    """Labels of a sample, `{host="n1"}`; unknown ones are empty."""

    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    pairs = ",".join(f'{name}="{escaped(value or "")}"' for name, value in named.items())
    return f"{{{pairs}}}"
