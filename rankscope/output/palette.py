"""Colours of pictures and of the page: one per phase, part of communication, and mark.

Phases have the colours of Okabe and Ito, which remain distinct with the usual kinds of colour
blindness. Excess runs from blue (less) over the page's colour to orange (more). Waiting and
communication that is not split into waiting and transfer are hatched.
"""

from collections.abc import Callable

from msgspec import Struct

from rankscope.model.kinds import HostState, Phase
from rankscope.model.metrics import METRICS

PHASE_COLORS: dict[Phase, str] = {
    Phase.LOAD: "#E69F00",
    Phase.FORWARD: "#0072B2",
    Phase.BACKWARD: "#56B4E9",
    Phase.OPTIMIZER: "#009E73",
    Phase.OTHER: "#8C8C8C",
}
"""Colour of each phase, on light and on dark pages."""

STATE_COLORS: dict[HostState, str] = {
    HostState.ON_CPU: "#56B4E9",
    HostState.BLOCKED: "#E69F00",
    HostState.OFF_CPU: "#D55E00",
    HostState.CUDA_CALL: "#009E73",
    HostState.PROFILER: "#8C8C8C",
}
"""Colour of each state of a thread, on light and on dark pages; unknown time is hatched."""

STATE_NAMES: dict[HostState, str] = {
    HostState.ON_CPU: "on the CPU",
    HostState.BLOCKED: "blocked in a call",
    HostState.OFF_CPU: "off the CPU",
    HostState.CUDA_CALL: "in a CUDA call",
    HostState.PROFILER: "profiler",
    HostState.UNKNOWN: "unknown",
}
"""Name of each state in pictures and traces, in the order in which bars stack them."""

COMMUNICATION_PARTS = ("wait", "transfer", "exposed_communication")
"""Parts of an iteration that are not work; the last one if it is not split into the others."""

BACKGROUND = "background"
"""Work that belongs to no part, because threads beside the training launched it."""


def part_name(part: str) -> str:
    """The name of a part of an iteration in pictures, on pages and in traces."""
    if part == BACKGROUND:
        return "background threads"
    return METRICS[part].label if part in METRICS else part


class Theme(Struct, frozen=True):
    """Colours of one kind of page."""

    page: str  # the background
    ink: str  # main text
    muted: str  # other text, and marks
    faint: str  # grids, and work of background threads
    wait: str
    transfer: str
    late: str  # the last arrival, and the slow rank
    excess: tuple[str, ...]  # from the least to the most

    @property
    def parts(self) -> dict[str, str]:
        """Colour of each part of an iteration, in the order in which bars stack them."""
        return {
            **{phase.value: color for phase, color in PHASE_COLORS.items()},
            "wait": self.wait,
            "transfer": self.transfer,
            "exposed_communication": self.transfer,
            BACKGROUND: self.faint,
        }

    @property
    def css(self) -> str:
        """The colours as CSS variables: `--page: #FFFFFF; …`."""
        named = {
            "page": self.page,
            "ink": self.ink,
            "muted": self.muted,
            "faint": self.faint,
            "late": self.late,
            **self.parts,
            **{f"state-{state}": color for state, color in STATE_COLORS.items()},
            "state-unknown": self.page,
            "excess": " ".join(self.excess),
        }
        return " ".join(f"--{name}: {color};" for name, color in named.items())


THEMES = {
    "light": Theme(
        page="#FFFFFF", ink="#1B1F24", muted="#57606A", faint="#D5DAE0", wait="#C9CED6",
        transfer="#CC79A7", late="#D55E00",
        excess=("#08306B", "#3F8FC5", "#A9CFE5", "#F4F4F2", "#F6B26B", "#DD6B20", "#8A2D04"),
    ),
    "dark": Theme(
        page="#14171C", ink="#E8EBEF", muted="#A3ACB8", faint="#3A424D", wait="#4B5563",
        transfer="#CC79A7", late="#FF8A3D",
        excess=("#A8D4FF", "#4A9BE0", "#2A5F8F", "#22272E", "#9A5420", "#E8853A", "#FFD0A3"),
    ),
}  # fmt: skip


def in_both_themes(variables: Callable[[Theme], str]) -> str:
    """CSS that sets variables by the theme that the browser asks for; on paper the light one.

    Args:
        variables: gives the variables of a theme: `--page: #FFFFFF; …`.
    """
    light, dark = map(variables, (THEMES["light"], THEMES["dark"]))
    return (
        f":root {{ {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not(.paper) {{ {dark} }} }}"
    )
