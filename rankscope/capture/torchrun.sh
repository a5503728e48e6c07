# torchrun:  torchrun --nproc-per-node 8 --no-python WRAPPER python train.py
rank=${RANK:?no torchrun worker: put torchrun --no-python in front of this script}
local_rank=${LOCAL_RANK:?} node=$GROUP_RANK report='report_rank_%q{RANK}'
run=${SLURM_JOB_ID:-${PBS_JOBID:-}}
# A worker that was restarted has its report of the first attempt.
[ "${TORCHELASTIC_RESTART_COUNT:-0}" = 0 ] || exec "$@"
