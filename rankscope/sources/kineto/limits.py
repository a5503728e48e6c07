"""How large a trace may be, and how much of it is held at once."""

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Limits of reading a trace.

    Attributes:
        first_bytes: bytes that are read first; the fields before the events fit in.
        chunk_bytes: bytes that are read at once after these; larger chunks are slower to decode.
        largest_bytes: of one event, and of the text after the events, in Kineto's files.
        most_times, most_bytes: a file may unpack to `most_times` its size, and `most_bytes` more;
            real ones unpack to 10 to 30 times their size.
        most_events: a file may hold this many events more than it has bytes; real ones have one in
            10 to 20 bytes.
        most_names: different names of ranges, and of kernels; real traces have thousands.
    """

    first_bytes: int = 2**22
    chunk_bytes: int = 2**20
    largest_bytes: int = 2**24
    most_times: int = 200
    most_bytes: int = 2**26
    most_events: int = 10**6
    most_names: int = 10**6


LIMITS = Limits()
"""Those of all traces."""
