"""Warnings about a capture → how to capture it better, exactly."""

from collections.abc import Iterable

from rankscope.model.reports import CaptureFacts, CheckWarning, ReportFile
from rankscope.sources.environment import OPEN_MPI, PMI, SLURM, TORCHRUN
from rankscope.sources.recorders import PYTORCH_DEVICE, Recorder, recorder_of

LAUNCHERS = {OPEN_MPI: "mpirun", SLURM: "slurm", PMI: "pbs", TORCHRUN: "torchrun"}
"""Evidence of a rank → its launcher, the most specific first."""

ANY = "slurm|pbs|mpirun|torchrun|k8s"
"""In place of a launcher that is unknown: all of them."""

OF_ANY = {
    "another-run": "read one run: rankscope ingest PATH... --run N, which lists the runs without "
    "--run; or all: --all-runs",
    "clock-wrong": "ingest each job alone if these are two; else synchronise the clocks of the "
    "hosts (NTP), on which the numbers do not depend",
    "clocks-unaligned": "ingest the reports of all ranks, with the communication recorded on each; "
    "sends and receives tie clocks if the reports, their ends or --roles tell the peers",
    "device-clock-wrong": "nothing to do if the numbers look right; a newer profiler or driver may "
    "convert times correctly",
    "iterations-unnamed": "give that --iteration; if the ranges are something else, nothing to do",
    "iterations-without-work": "nothing to do if these steps do no work on the device; else "
    "rankscope check PATH... says what the reports lack",
    "measured-before": "ingest the reports again with this rankscope",
    "not-aligned": "ingest the reports of all ranks, with the communication recorded on each",
    "nothing-to-compare": "record the same steps on every rank, or give another --iter-range",
    "pattern-unused": "correct the pattern, or nothing if only other ranks have such ranges",
    "options-differ": "ingest all reports again with the same options",
    "roles-inferred": "look at the groups; if they are wrong, state them with --roles",
    "report-copied": "nothing to do, or remove the copies",
    "several-devices": "nothing to do; or run one process per device",
    "steps-doubtful": "number the steps alike on every rank, and synchronise the hosts' clocks",
    "times-unsure": "nothing to do; a newer profiler or driver may write exact times",
    "unmatched-collectives": "ingest the reports of all ranks, recorded in the same steps",
    "waits-disagree": "nothing to do; take waits below that difference with caution",
    "waits-lower-bounds": "record every rank, and ingest all reports together",
    "waits-unknown": "record the communication on every rank; for sends and receives whose ends "
    "do not tell the peers, give --roles with pp=; nothing tells more of MPI_Wait",
    "warmup-unsettled": "look at rankscope plot heatmap, and choose iterations with --iter-range",
}
"""Warning code → what to do, whatever recorded the reports."""

TEN_STEPS = (
    "record ten steps or more: {capture} --capture-range cudaProfilerApi, or a longer --duration"
)

LESS_AT_ONCE = (
    "record less at once: {capture} --capture-range cudaProfilerApi around ten to fifty steps; "
    "--nsys=--cuda-flush-interval=1000 empties nsys's buffers every second"
)

ON_EVERY_RANK = "record the same steps on every rank: {capture} --capture-range cudaProfilerApi"

OWN_START = f"{ON_EVERY_RANK}; a --delay counts from each rank's own start"

PARTS = "annotate the parts of a step ({capture_snippet}), or name them with --phase "

REMEDIES = {
    "began-apart": f"{TEN_STEPS}; --iter-range leaves the first one out",
    "cannot-be-paired": "number the ranges as in {capture_snippet}, and record the same steps on "
    "every rank: {capture} --capture-range cudaProfilerApi",
    "capture-whole": "name the ranges with --iteration 'REGEX', or annotate the loop: "
    "{capture_snippet}; code that cannot be edited: {capture} --python-functions-trace torch.json",
    "collectives-missing": "record them on every rank, as {capture} does: nsys --trace=cuda,nvtx "
    "for NCCL, and mpi for MPI; a gloo all-reduce needs a range 'all_reduce' around it",
    "events-lost": LESS_AT_ONCE,
    "few-iterations": TEN_STEPS,
    "file-name-disagrees": "name reports by their rank, as {capture} does",
    "gpu-missing": "record it on every rank, as {capture} does: nsys --trace=cuda,nvtx; for a job "
    "on CPUs there is nothing to do",
    "gpu-sparse": "record kernels inside CUDA graphs one by one: {capture} --cuda-graph-nodes; and "
    "annotate the phases that launch the work ({capture_snippet})",
    "graphs-opaque": "record kernels inside CUDA graphs one by one: {capture} --cuda-graph-nodes",
    "iteration-cut": "end the recording while training goes on: {capture} --capture-range "
    "cudaProfilerApi, or --delay S --duration S",
    "iterations-missing": OWN_START,
    "iterations-uneven": OWN_START,
    "iterations-assumed": "annotate the loop: {capture_snippet}; or call prof.step() of PyTorch's "
    "profiler after each iteration",
    "markers-missing": "annotate on every rank, not on rank 0 alone: {capture_snippet}",
    "matched-by-ordinal": "number the ranges ('step 12'), as in {capture_snippet}; where they "
    "have numbers, a group takes them: --iteration 'step (\\d+)'",
    "missing-ranks": "profile every rank into one folder: {capture}, without --local-ranks and "
    "--nodes; check and ingest them together",
    "no-phases": f"{PARTS}forward='REGEX' and so on",
    "no-utc": "capture again with {capture}; an export needs the table "
    "TARGET_INFO_SESSION_START_TIME",
    "phases-from-operators": f"{PARTS}forward='REGEX' and so on",
    "phases-unknown": "record whole steps, ten or more: {capture} --capture-range cudaProfilerApi; "
    "kernels of CUDA graphs: {capture} --cuda-graph-nodes, and a graph for each phase",
    "part-unread": "export the report again where names are missing; communicators of NCCL are "
    "inferred from their collectives, and a newer rankscope may read them directly",
    "phase-unnamed": f"{PARTS}backward='REGEX' and so on",
    "launches-missing": "record the API calls: nsys --trace=cuda, and export with the table "
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "records-missing": LESS_AT_ONCE,
    "report-cut": "copy the report again, or capture again with {capture}",
    "rank-assumed": "name the report by its rank, as {capture} does; or --rank N",
    "rank-conflict": "profile one job at a time, each rank into its own report: {capture}",
    "rank-twice": "check the reports of one run at a time, or without the stray one; {capture} "
    "writes one folder per job and one report per rank, and never overwrites",
    "ranks-by-order": "profile each rank into its own report: {capture}; or record MPI: nsys "
    "--trace=mpi",
    "rank-unknown": "profile each rank into its own report, named by its rank: {capture}; or show "
    "where the path has the rank: --rank-pattern 'rank_(?P<rank>\\d+)'",
    "rows-broken": "export it again: nsys export -f true -t sqlite REPORT.nsys-rep",
    "steps-found": "annotate the loop: {capture_snippet}; or name the ranges with --iteration "
    "'REGEX'",
    "versions-differ": "capture with one nsys on every node: {capture}, and "
    "RANKSCOPE_NSYS=/path/to/nsys in the job's environment",
    "waits-hidden": "record NCCL's kernels, as {capture} does: nsys --trace=cuda,nvtx",
    "windows-shifted": ON_EVERY_RANK,
}
"""Warning code → what to do about a report of nsys.

`{capture}` becomes the command for the job's launcher.
"""


CAPTURE_AGAIN = "capture again with {capture}"
"""The remedy for codes without their own."""

PYTORCH = "torch.profiler"
"""In place of a launcher: how traces of PyTorch are recorded, on any device."""

STEPWISE = "record few steps at once: torch.profiler.schedule(wait=5, warmup=2, active=10)"

ACTIVITIES = f"record host and device on every rank: {PYTORCH_DEVICE}"

SAME_STEPS = "record the same steps on every rank: the same torch.profiler.schedule"

OF_PYTORCH = {
    "began-apart": "record ten steps or more: torch.profiler.schedule(active=10); --iter-range "
    "leaves the first one out",
    "cannot-be-paired": "call prof.step() after every iteration, and record the same steps on "
    "every rank",
    "capture-whole": "call prof.step() after every iteration, or name ranges with --iteration "
    "'REGEX'",
    "collectives-missing": f"{ACTIVITIES}; name kernels of your own: --collective "
    "all_reduce='REGEX'",
    "events-lost": STEPWISE,
    "file-name-disagrees": "name traces by their rank",
    "few-iterations": "record ten steps or more: torch.profiler.schedule(active=10)",
    "gpu-missing": ACTIVITIES,
    "gpu-sparse": ACTIVITIES,
    "iteration-cut": "end the recording while training goes on: torch.profiler.schedule(active=10)",
    "iterations-assumed": "call prof.step() after every iteration",
    "iterations-missing": SAME_STEPS,
    "iterations-uneven": SAME_STEPS,
    "launches-missing": ACTIVITIES,
    "markers-missing": "call prof.step() on every rank, and name phases with record_function",
    "matched-by-ordinal": "call prof.step() after every iteration: it numbers them",
    "missing-ranks": "record every rank, and check and ingest all traces together",
    "no-phases": "name the parts of a step with torch.profiler.record_function('forward') and so "
    "on, or their names with --phase forward='REGEX'",
    "no-utc": "record with a newer PyTorch, which writes baseTimeNanoseconds",
    "phases-from-operators": "name the parts of a step with "
    "torch.profiler.record_function('backward') and so on, or with --phase backward='REGEX'",
    "phases-unknown": "record whole steps, ten or more, with ProfilerActivity.CPU: "
    "torch.profiler.schedule(active=10); a CUDA graph of several phases has none",
    "phase-unnamed": "name the parts of a step with torch.profiler.record_function, or --phase "
    "backward='REGEX' and so on",
    "part-unread": "find out what these events are: what the device does in them is in no number",
    "rank-assumed": "name the trace by its rank; or --rank N",
    "ranks-by-order": "record each rank into a trace of its own",
    "rank-conflict": "record one job at a time, each rank into a trace of its own",
    "rank-twice": "check the traces of one run at a time, or without the stray one",
    "rank-unknown": "export each rank's trace to a file named by its rank; or show where the path "
    "has the rank: --rank-pattern 'rank_(?P<rank>\\d+)'",
    "records-missing": STEPWISE,
    "report-cut": "copy the trace again, or record again and end the program after the export",
    "rows-broken": "export the trace again with a newer PyTorch: prof.export_chrome_trace",
    "steps-found": "call prof.step() after every iteration, or name ranges with --iteration "
    "'REGEX'",
    "waits-hidden": ACTIVITIES,
    "windows-shifted": SAME_STEPS,
}
"""Warning code → what to do about a trace of PyTorch's profiler."""

INSPECTOR = "NCCL Inspector"
"""In place of a launcher: how dumps of NCCL Inspector are recorded."""

ALONE = "nothing to do: NCCL Inspector records collectives alone"

OF_INSPECTOR = {
    "events-lost": "write dumps more often, or keep more: "
    "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS=500, NCCL_INSPECTOR_DUMP_COLL_RING_SIZE",
    "gpu-sparse": ALONE,
    "iteration-cut": "nothing to do: the steps before it are compared",
    "launches-missing": ALONE,
    "matched-by-ordinal": "nothing to do: the collectives of each step confirm it",
    "no-phases": ALONE,
    "phases-unknown": ALONE,
    "rank-unknown": "show where the path has the rank: --rank-pattern 'rank_(?P<rank>\\d+)'",
    "steps-found": "nothing to do if there are as many as the job made; else --iteration whole",
}
"""Warning code → what to do about a dump of NCCL Inspector."""

OF_RECORDER = {Recorder.PYTORCH: PYTORCH, Recorder.INSPECTOR: INSPECTOR}
"""Recorder → the name that is used in place of a launcher's."""


def launcher_of(file: ReportFile, facts: CaptureFacts) -> str:
    """The launcher of a report's job, or ANY; PYTORCH or INSPECTOR for what these recorded."""
    if (known := OF_RECORDER.get(recorder_of([file.kind]))) is not None:
        return known
    claimed = {claim.evidence for claim in facts.environment}
    return next((name for evidence, name in LAUNCHERS.items() if evidence in claimed), ANY)


def launcher_by_kind(kinds: Iterable[str]) -> str:
    """The same of reports of some formats: PYTORCH, INSPECTOR or ANY."""
    return OF_RECORDER.get(recorder_of(kinds), ANY)


def remedy(code: str, launcher: str = ANY) -> str:
    """The remedy of a warning, which depends on the recorder of the report."""
    if code in OF_ANY:
        return OF_ANY[code]
    if launcher == PYTORCH:
        return OF_PYTORCH.get(code, "record again with torch.profiler, on every rank")
    if launcher == INSPECTOR:
        return OF_INSPECTOR.get(
            code, "record again with NCCL_INSPECTOR_DUMP_VERBOSE=1 on every rank"
        )
    return REMEDIES.get(code, CAPTURE_AGAIN).format(
        capture=f"rankscope capture {launcher}", capture_snippet="rankscope capture --snippet"
    )


def with_remedy(
    code: str, message: str, launcher: str = ANY, *, hint: str | None = None, fatal: bool = False
) -> CheckWarning:
    """A warning with the remedy of its code, or `hint` if the error has its own."""
    return CheckWarning(code, message, hint or remedy(code, launcher), fatal)
