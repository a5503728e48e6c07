"""Dumps of NCCL Inspector and RCCL Inspector."""
