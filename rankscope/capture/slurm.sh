# Slurm:  srun WRAPPER python train.py
: "${SLURM_PROCID:?no Slurm task: put srun in front of this script}"
rank=$(number SLURM_PROCID)
local_rank=$(number SLURM_LOCALID)
node=$(number SLURM_NODEID)
report='report_rank_%q{SLURM_PROCID}'
run=$SLURM_JOB_ID.$SLURM_STEP_ID
