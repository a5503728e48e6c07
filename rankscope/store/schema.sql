-- One run: the reports of one profiled job, reduced to what comparing its ranks needs.
-- Written by `python -m tests.store.schema_file` from rankscope/model/tables.py: edit that.
-- Times are nanoseconds on the report's own axis (0 = its session start) unless said otherwise.

create table meta (
    "key" varchar primary key,
    "value" varchar
);
comment on table meta is 'What this file is: schema_version, and which clock rank_iterations uses';
comment on column meta."key" is 'Name of the fact';
comment on column meta."value" is 'The fact';

create table reports (
    "path" varchar primary key,
    "kind" varchar not null,
    "bytes" bigint not null,
    "modified_ns" bigint not null,
    "options" varchar not null,
    "host" varchar,
    "utc_start_ns" bigint,
    "duration_ns" bigint,
    "exporter" varchar,
    "software" varchar,
    "windows" varchar,
    "events" bigint not null,
    "iterations" bigint not null
);
comment on table reports is 'A row per report that was read';
comment on column reports."path" is 'Where the report was when it was read';
comment on column reports."kind" is 'Format of the report, e.g. nsys-sqlite or kineto';
comment on column reports."bytes" is 'Size of the file';
comment on column reports."modified_ns" is 'Modification time of the file, ns since the epoch';
comment on column reports."options" is 'The ingest options that shaped its rows, as JSON';
comment on column reports."host" is 'Host it was captured on';
comment on column reports."utc_start_ns" is 'UTC of the report''s time 0 by its host''s clock, ns since the epoch';
comment on column reports."duration_ns" is 'Where the capture ends on the report''s axis';
comment on column reports."exporter" is 'Version of the program that wrote the file';
comment on column reports."software" is 'Versions of driver, CUDA and NCCL, where it states them';
comment on column reports."windows" is 'Files of further windows of its process, from its folder, as JSON: path → start on the report''s axis, ns';
comment on column reports."events" is 'Number of events read from it';
comment on column reports."iterations" is 'Iterations found in it, of the rank that has most';

create table ranks (
    "rank" bigint primary key,
    "path" varchar not null,
    "pid" bigint not null,
    "local_rank" bigint,
    "world_size" bigint,
    "host" varchar,
    "evidence" varchar not null,
    "numbered" boolean not null,
    "convention" varchar not null,
    "has_device" boolean not null,
    "clock_gpu" boolean not null,
    "work_known" boolean not null,
    "gpu_uuid" varchar,
    "gpu_name" varchar,
    "gpu_bus" varchar,
    "adapters" varchar,
    "cpu" varchar
);
comment on table ranks is 'A row per rank';
comment on column ranks."rank" is 'Rank of the job';
comment on column ranks."path" is 'Path of its report';
comment on column ranks."pid" is 'Its process id, as the GUI names its row';
comment on column ranks."local_rank" is 'Its number on its host, where known';
comment on column ranks."world_size" is 'Ranks of the whole job, where its environment says so';
comment on column ranks."host" is 'Host it ran on';
comment on column ranks."evidence" is 'What says that it is this rank';
comment on column ranks."numbered" is 'Whether its iterations carry numbers; else they are counted';
comment on column ranks."convention" is 'Framework or option whose naming its iterations follow';
comment on column ranks."has_device" is 'Whether its report holds device work';
comment on column ranks."clock_gpu" is 'Whether nearly all its iterations have device work in some phase';
comment on column ranks."work_known" is 'Whether its waits are visible on the host clock';
comment on column ranks."gpu_uuid" is 'UUID of the GPU that it computed on';
comment on column ranks."gpu_name" is 'Model of that GPU';
comment on column ranks."gpu_bus" is 'Slot of that GPU: its place on the bus';
comment on column ranks."adapters" is 'GUIDs of its host''s network adapters, with blanks between';
comment on column ranks."cpu" is 'Model of its host''s CPU';

create table iterations (
    "rank" bigint not null,
    "iteration" bigint not null,
    "epoch" bigint not null,
    "number" bigint not null,
    "start_ns" bigint not null,
    "end_ns" bigint not null,
    "view_start_ns" bigint not null,
    "view_end_ns" bigint not null,
    "complete" boolean not null
);
comment on table iterations is 'A row per rank and iteration: where its range lies';
comment on column iterations."rank" is 'Rank of the job';
comment on column iterations."iteration" is 'Number that means the same step on every rank; epochs count on';
comment on column iterations."epoch" is 'How often the numbers had started over';
comment on column iterations."number" is 'Number as the range''s name or payload says';
comment on column iterations."start_ns" is 'Start of the iteration''s own range';
comment on column iterations."end_ns" is 'End of the iteration''s own range';
comment on column iterations."view_start_ns" is 'Start of its first host range: look from here';
comment on column iterations."view_end_ns" is 'End of its last device work: look until here';
comment on column iterations."complete" is 'False where the capture''s edge or a kill cut it';

create table measures (
    "rank" bigint not null,
    "iteration" bigint not null,
    "clock" varchar not null,
    "window_start_ns" bigint,
    "iteration_ns" bigint,
    "load_ns" bigint,
    "forward_ns" bigint,
    "backward_ns" bigint,
    "optimizer_ns" bigint,
    "other_ns" bigint,
    "exposed_communication_ns" bigint,
    "work_ns" bigint,
    "time_to_all_reduce_ns" bigint,
    "time_to_first_all_reduce_ns" bigint,
    "compute_ns" bigint,
    "communication_ns" bigint,
    "idle_ns" bigint,
    "host_ns" bigint
);
comment on table measures is 'A row per rank, iteration and clock; null is unknown, never 0';
comment on column measures."rank" is 'Rank of the job';
comment on column measures."iteration" is 'Iteration number, the same step on every rank';
comment on column measures."clock" is 'host: what the CPU thread did; gpu: what the device did';
comment on column measures."window_start_ns" is 'Where the iteration''s window starts on this clock';
comment on column measures."iteration_ns" is 'Length of the iteration''s window, ns';
comment on column measures."load_ns" is 'Fetching data and copying it to the device, ns';
comment on column measures."forward_ns" is 'Forward pass, ns';
comment on column measures."backward_ns" is 'Backward pass, without waiting for others, ns';
comment on column measures."optimizer_ns" is 'Optimizer step, ns';
comment on column measures."other_ns" is 'The rest of the window, ns';
comment on column measures."exposed_communication_ns" is 'Communication that no work of the rank covers, ns';
comment on column measures."work_ns" is 'Iteration less exposed communication: what the rank itself needed, ns';
comment on column measures."time_to_all_reduce_ns" is 'Window start to arrival at the last gradient reduction, less exposed communication before it, ns';
comment on column measures."time_to_first_all_reduce_ns" is 'The same to the first gradient reduction, ns';
comment on column measures."compute_ns" is 'Union of computation on the device, ns';
comment on column measures."communication_ns" is 'Union of communication on the device, ns';
comment on column measures."idle_ns" is 'Window less all device work, ns';
comment on column measures."host_ns" is 'Time of the training thread outside of calls that wait for the device or other ranks, ns';

create table collectives (
    "rank" bigint not null,
    "iteration" bigint not null,
    "place" varchar not null,
    "communicator" varchar not null,
    "operation" varchar not null,
    "ordinal" bigint not null,
    "gradient" boolean not null,
    "arrival_ns" bigint not null,
    "start_ns" bigint not null,
    "end_ns" bigint not null,
    "bytes" bigint
);
comment on table collectives is 'A row per rank and collective call or kernel';
comment on column collectives."rank" is 'Rank of the job';
comment on column collectives."iteration" is 'Iteration number, the same step on every rank';
comment on column collectives."place" is 'host: a blocking call; device: a kernel';
comment on column collectives."communicator" is 'The rank''s own name for the group: its source or stream';
comment on column collectives."operation" is 'all_reduce, all_gather, reduce_scatter, all_to_all, barrier, rooted, point_to_point, wait or grouped';
comment on column collectives."ordinal" is 'Number among the calls of the iteration, by which ranks match';
comment on column collectives."gradient" is 'Whether it reduces gradients';
comment on column collectives."arrival_ns" is 'When the rank was ready to enter it';
comment on column collectives."start_ns" is 'When the call or kernel started';
comment on column collectives."end_ns" is 'When it ended';
comment on column collectives."bytes" is 'Message size, where known';

create table exposed (
    "rank" bigint not null,
    "iteration" bigint not null,
    "clock" varchar not null,
    "start_ns" bigint not null,
    "end_ns" bigint not null
);
comment on table exposed is 'Intervals of exposed communication, disjoint per rank and clock';
comment on column exposed."rank" is 'Rank of the job';
comment on column exposed."iteration" is 'Iteration number, the same step on every rank';
comment on column exposed."clock" is 'host or gpu';
comment on column exposed."start_ns" is 'Start';
comment on column exposed."end_ns" is 'End';

create table activities (
    "rank" bigint not null,
    "iteration" bigint not null,
    "phase" varchar not null,
    "kind" varchar not null,
    "name" varchar not null,
    "count" bigint,
    "total_ns" bigint,
    "size" bigint,
    "clear_ns" bigint,
    "clear_size" bigint,
    "launches" integer[]
);
comment on table activities is 'What phases are spent on: a row per rank, iteration, phase, kind and name';
comment on column activities."rank" is 'Rank of the job';
comment on column activities."iteration" is 'Iteration number, the same step on every rank';
comment on column activities."phase" is 'The phase in which it was launched, or that owns the idling';
comment on column activities."kind" is 'kernel, copy, set, idle (of the device) or range (of the host, nested in the phase)';
comment on column activities."name" is 'Kernel or range; empty: without a name, or the sum of all minor ones';
comment on column activities."count" is 'Number of operations';
comment on column activities."total_ns" is 'Sum of their lengths';
comment on column activities."size" is 'Blocks of kernels, bytes of copies and sets, else 0';
comment on column activities."clear_ns" is 'Part of total_ns in operations that overlap no collective; null for ranges and idling';
comment on column activities."clear_size" is 'Blocks or bytes of those; null for ranges and idling';
comment on column activities."launches" is 'Lengths of at most 6 of a kernel''s launches, evenly spaced from the first on; negative where collectives run all the time, null where they run a part of it; null for what is no kernel with a name';

create table host_states (
    "rank" bigint not null,
    "iteration" bigint not null,
    "phase" varchar not null,
    "state" varchar not null,
    "name" varchar not null,
    "count" bigint not null,
    "total_ns" bigint not null
);
comment on table host_states is 'What the training thread did: a row per rank, iteration, phase, state and name; only of reports that recorded it';
comment on column host_states."rank" is 'Rank of the job';
comment on column host_states."iteration" is 'Iteration number, the same step on every rank';
comment on column host_states."phase" is 'Phase on the host clock, or exposed_communication: a blocking collective';
comment on column host_states."state" is 'on_cpu; blocked: off the CPU in a call of the operating system; off_cpu: off the CPU without one; cuda_call; profiler: its own time; unknown: no table tells';
comment on column host_states."name" is 'Call; of on_cpu the call, else the function by samples; of unknown off_cpu where calls are not recorded; empty: none, or the sum of all minor ones';
comment on column host_states."count" is 'Number of stretches; of functions: of samples';
comment on column host_states."total_ns" is 'Time; over states and names it adds up to the phase on the host clock';

create table file_accesses (
    "rank" bigint not null,
    "iteration" bigint not null,
    "phase" varchar not null,
    "call" varchar not null,
    "file" varchar not null,
    "count" bigint not null,
    "bytes" bigint,
    "total_ns" bigint not null
);
comment on table file_accesses is 'Files that the training thread read or wrote: a row per rank, iteration, phase, call and file; only of reports that recorded it';
comment on column file_accesses."rank" is 'Rank of the job';
comment on column file_accesses."iteration" is 'Iteration number, the same step on every rank';
comment on column file_accesses."phase" is 'Phase on the host clock in which the access began';
comment on column file_accesses."call" is 'Call of the C library; empty: unknown';
comment on column file_accesses."file" is 'Name of the file without its folders; empty: all minor ones';
comment on column file_accesses."count" is 'Number of accesses';
comment on column file_accesses."bytes" is 'Bytes read or written, where known';
comment on column file_accesses."total_ns" is 'Sum of their lengths';

create table counters (
    "rank" bigint not null,
    "iteration" bigint not null,
    "source" varchar not null,
    "device" varchar not null,
    "metric" varchar not null,
    "count" bigint not null,
    "value" double not null
);
comment on table counters is 'Counters of GPUs, network adapters and unified memory: a row per rank in whose report they are, iteration, device and metric; of all devices of the rank''s host';
comment on column counters."rank" is 'Rank of the job';
comment on column counters."iteration" is 'Iteration of this rank in which they were sampled';
comment on column counters."source" is 'gpu; nic: a network adapter; process: that of the rank';
comment on column counters."device" is 'UUID or else slot of the GPU, GUID of the adapter; empty: unknown, or the process';
comment on column counters."metric" is 'clock (MHz), sys_clock (MHz), sm_active, dram_read, dram_write, pcie_rx, pcie_tx, nvlink_rx, nvlink_tx (%), sent, received (bytes per second), send_waits (ticks per second), gpu_page_faults, cpu_page_faults (of unified memory)';
comment on column counters."count" is 'Number of samples; of page faults: of events';
comment on column counters."value" is 'Mean of the samples; of page faults: their number';

create table problems (
    "path" varchar not null,
    "code" varchar not null,
    "message" varchar not null,
    "ranks" bigint[]
);
comment on table problems is 'Warnings about the numbers of a report';
comment on column problems."path" is 'Path of the report';
comment on column problems."code" is 'Short name of the warning';
comment on column problems."message" is 'What it is and what to do';
comment on column problems."ranks" is 'Ranks it concerns; empty: all of the report''s';
