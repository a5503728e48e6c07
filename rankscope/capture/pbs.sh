# PBS with PALS (Cray):  mpiexec -n 8 --ppn 4 WRAPPER python train.py
: "${PALS_RANKID:?no PALS rank: put mpiexec in front of this script, or use the wrapper for mpirun}"
rank=$(number PALS_RANKID)
local_rank=$(number PALS_LOCAL_RANKID)
node=$(number PALS_NODEID)
report='report_rank_%q{PALS_RANKID}' mpi=mpich
run=${PBS_JOBID%%.*}.${PALS_APID:0:8}
