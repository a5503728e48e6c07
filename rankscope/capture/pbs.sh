# PBS with PALS (Cray):  mpiexec -n 8 --ppn 4 WRAPPER python train.py
: "${PALS_RANKID:?no PALS rank: put mpiexec in front of this script, or use the wrapper for mpirun}"
rank=$PALS_RANKID report='report_rank_%q{PALS_RANKID}'
local_rank=$PALS_LOCAL_RANKID node=$PALS_NODEID mpi=mpich
run=${PBS_JOBID%%.*}.${PALS_APID:0:8}
