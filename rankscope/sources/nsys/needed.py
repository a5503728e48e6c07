"""The tables of an export that rankscope reads: it asks nsys for no others.

An export of all tables has about 60 more, most of them names of enumerations: with as many files in
a folder of Parquet files, and stacks of calls that may be larger than all that is read.
"""

from __future__ import annotations

TABLES = (
    "ANALYSIS_DETAILS",
    "COMPOSITE_EVENTS",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_OVERHEAD",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "DIAGNOSTIC_EVENT",
    "EXPORT_META_DATA",
    "GPU_METRICS",
    "META_DATA_CAPTURE",
    "META_DATA_EXPORT",
    "MPI_COLLECTIVES_EVENTS",
    "MPI_OTHER_EVENTS",
    "MPI_P2P_EVENTS",
    "MPI_RANKS",
    "MPI_START_WAIT_EVENTS",
    "NCCL_GPU_OPERATIONS",
    "NCCL_GPU_OPERATIONS_COLLECTIVE",
    "NET_NIC_METRIC",
    "NIC_ID_MAP",
    "NVTX_EVENTS",
    "NVTX_PAYLOAD_SCHEMAS",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
    "OSRT_API",
    "OSRT_FILE_ACCESS_DESCRIPTORS",
    "OSRT_FILE_ACCESS_EVENTS",
    "PROFILER_OVERHEAD",
    "SAMPLING_CALLCHAINS",
    "SCHED_EVENTS",
    "StringIds",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_GPU",
    "TARGET_INFO_GPU_METRICS",
    "TARGET_INFO_NETWORK_METRICS",
    "TARGET_INFO_NIC_INFO",
    "TARGET_INFO_SESSION_START_TIME",
    "TARGET_INFO_SYSTEM_ENV",
    "ThreadNames",
)
