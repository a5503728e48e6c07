# torchrun:  torchrun --nproc-per-node 8 --no-python WRAPPER python train.py
: "${RANK:?no torchrun worker: put torchrun --no-python in front of this script}"
rank=$(number RANK)
local_rank=$(number LOCAL_RANK)
node=$(number GROUP_RANK)
report='report_rank_%q{RANK}'
run=${SLURM_JOB_ID:-${PBS_JOBID:-}}
# A worker that was restarted has its report of the first attempt.
[ "${TORCHELASTIC_RESTART_COUNT:-0}" = 0 ] || exec "$@"
