# Slurm:  srun WRAPPER python train.py
: "${SLURM_PROCID:?no Slurm task: put srun in front of this script}"
rank=$SLURM_PROCID report='report_rank_%q{SLURM_PROCID}'
local_rank=$SLURM_LOCALID node=$SLURM_NODEID
run=$SLURM_JOB_ID.$SLURM_STEP_ID
