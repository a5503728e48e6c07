"""CREATE TABLE statements as `nsys export` writes them, comments and spacing included.

Each table is a block: a line `NAME: what it holds`, then a line per column: name, type (`I`, `T`,
`R` for INTEGER, TEXT, REAL; `!` NOT NULL; `*` its primary key too; `23` only in that exporter),
comment.
"""

from tests.forge.job import Schema

_TABLES = """
StringIds: Consolidation of repetitive string values.
id I* ID reference value.
value T! String value.

ThreadNames:
nameId I! REFERENCES StringIds(id) -- Thread name
priority I Priority of the thread.
globalTid I Serialized GlobalId.

PROCESSES: Names and identifiers of processes captured in the report.
globalPid I Serialized GlobalId.
pid I The process ID.
name T The process name.

ANALYSIS_DETAILS: Details about the analysis session.
globalVid I! Serialized GlobalId.
duration I! The total time span of the entire trace (ns).
startTime I! Trace start timestamp in nanoseconds.
stopTime I! Trace stop timestamp in nanoseconds.

TARGET_INFO_SESSION_START_TIME:
utcEpochNs I UTC Epoch timestamp at start of the capture (ns).
utcTime T Start of the capture in UTC.
localTime T Start of the capture in local time of target.

TARGET_INFO_SYSTEM_ENV:
globalVid I! Serialized GlobalId.
devStateName T! Device state name.
name T! Property name.
nameEnum I! Property enum value.
value T! Property value.

EXPORT_META_DATA: information about nsys export process
name T! Name of export meta-data record
value T Value of export meta-data record

META_DATA_EXPORT: information about nsys export process
name T! Name of meta-data record
value T Value of meta-data record

META_DATA_CAPTURE: information about nsys capture parameters
name T! Name of meta-data record
value T Value of meta-data record

PROFILER_OVERHEAD:
start I! Event start timestamp (ns).
end I! Event end timestamp (ns).
globalTid I Serialized GlobalId.
nameId I! REFERENCES StringIds(id) -- Function name
returnValue I! Return value of the function call.

NVTX_EVENTS:
start I! Event start timestamp (ns).
end I Event end timestamp (ns).
eventType I! REFERENCES ENUM_NSYS_EVENT_TYPE(id)
rangeId I Correlation ID returned from a nvtxRangeStart call.
category I User-controlled ID that can be used to group events.
color I Encoded ARGB color value.
text T Optional text message for non registered strings.
globalTid I Serialized GlobalId.
endGlobalTid I Serialized GlobalId.
textId I REFERENCES StringIds(id) -- Registered NVTX domain
domainId I User-controlled ID that can be used to group events.
uint64Value I One of possible payload value union members.
int64Value I One of possible payload value union members.
doubleValue R One of possible payload value union members.
uint32Value I One of possible payload value union members.
int32Value I One of possible payload value union members.
floatValue R One of possible payload value union members.
jsonTextId I One of possible payload value union members.
jsonText T One of possible payload value union members.

CUPTI_ACTIVITY_KIND_RUNTIME:
start I! Event start timestamp (ns).
end I! Event end timestamp (ns).
eventClass I! REFERENCES ENUM_NSYS_EVENT_CLASS(id)
globalTid I Serialized GlobalId.
correlationId I ID used to identify events that this function call has triggered.
nameId I! REFERENCES StringIds(id) -- Function name
returnValue I! Return value of the function call.
callchainId I REFERENCES CUDA_CALLCHAINS(id)

CUPTI_ACTIVITY_KIND_KERNEL:
start I! Event start timestamp (ns).
end I! Event end timestamp (ns).
deviceId I! Device ID.
contextId I! Context ID.
greenContextId I23 Green context ID.
streamId I! Stream ID.
correlationId I REFERENCES CUPTI_ACTIVITY_KIND_RUNTIME(correlationId)
globalPid I Serialized GlobalId.
demangledName I! REFERENCES StringIds(id) -- Kernel function name w/ templates
shortName I! REFERENCES StringIds(id) -- Base kernel function name
mangledName I REFERENCES StringIds(id) -- Raw C++ mangled kernel function name
launchType I REFERENCES ENUM_CUDA_KRENEL_LAUNCH_TYPE(id)
cacheConfig I REFERENCES ENUM_CUDA_FUNC_CACHE_CONFIG(id)
registersPerThread I! Number of registers required for each thread executing the kernel.
gridX I! X-dimension grid size.
gridY I! Y-dimension grid size.
gridZ I! Z-dimension grid size.
blockX I! X-dimension block size.
blockY I! Y-dimension block size.
blockZ I! Z-dimension block size.
staticSharedMemory I! Static shared memory allocated for the kernel (B).
dynamicSharedMemory I! Dynamic shared memory reserved for the kernel (B).
localMemoryPerThread I! Amount of local memory reserved for each thread (B).
localMemoryTotal I! Total amount of local memory reserved for the kernel (B).
gridId I! Unique grid ID of the kernel assigned at runtime.
sharedMemoryExecuted I Shared memory size set by the driver.
graphNodeId I REFERENCES CUDA_GRAPH_EVENTS(graphNodeId)
sharedMemoryLimitConfig I REFERENCES ENUM_CUDA_SHARED_MEM_LIMIT_CONFIG(id)

CUPTI_ACTIVITY_KIND_MEMCPY:
start I! Event start timestamp (ns).
end I! Event end timestamp (ns).
deviceId I! Device ID.
contextId I! Context ID.
greenContextId I23 Green context ID.
streamId I! Stream ID.
correlationId I REFERENCES CUPTI_ACTIVITY_KIND_RUNTIME(correlationId)
globalPid I Serialized GlobalId.
bytes I! Number of bytes transferred (B).
copyKind I! REFERENCES ENUM_CUDA_MEMCPY_OPER(id)
deprecatedSrcId I Deprecated, use srcDeviceId instead.
srcKind I REFERENCES ENUM_CUDA_MEM_KIND(id)
dstKind I REFERENCES ENUM_CUDA_MEM_KIND(id)
srcDeviceId I Source device ID.
srcContextId I Source context ID.
dstDeviceId I Destination device ID.
dstContextId I Destination context ID.
migrationCause I REFERENCES ENUM_CUDA_UNIF_MEM_MIGRATION(id)
graphNodeId I REFERENCES CUDA_GRAPH_EVENTS(graphNodeId)
virtualAddress I Virtual base address of the page/s being transferred.
"""

_TYPES = {"I": "INTEGER", "T": "TEXT", "R": "REAL"}


def _parse() -> dict[str, tuple[str, list[tuple[str, str, str]]]]:
    tables = {}
    for block in _TABLES.strip().split("\n\n"):
        head, *lines = block.splitlines()
        name, _, comment = head.partition(":")
        columns = [(*line.split(" ", 2)[:2], line.split(" ", 2)[2]) for line in lines]
        tables[name] = (comment.strip(), columns)
    return tables  # type: ignore[return-value]


_PARSED = _parse()


def columns(table: str, schema: Schema) -> list[str]:
    """Column names of a table as one exporter writes it."""
    older = schema == "2022.4"
    return [name for name, kind, _ in _PARSED[table][1] if not (older and kind.endswith("23"))]


def create(table: str, schema: Schema) -> str:
    """The CREATE TABLE statement of a table."""
    note, specs = _PARSED[table]
    kept = set(columns(table, schema))
    specs = [spec for spec in specs if spec[0] in kept]
    lines = []
    for name, kind, about in specs:
        words = _TYPES[kind[0]].ljust(10)
        if "*" in kind:
            words += "NOT NULL   PRIMARY KEY"
        elif "!" in kind and not (
            # 2023.4 relaxed this one column.
            schema == "2023.4" and table == "TARGET_INFO_SYSTEM_ENV" and name == "globalVid"
        ):
            words += "NOT NULL"
        comma = "," if name != specs[-1][0] else ""
        lines.append(f"    {name:<28}{words.rstrip() + comma:<39}-- {about}")
    head = f"    -- {note}\n\n" if note else ""
    text = f"CREATE TABLE {table} (\n{head}" + "\n".join(lines) + "\n)"
    # Only the older exporter misspells the enum it refers to.
    return text if schema == "2022.4" else text.replace("KRENEL", "KERNEL")
