# Open MPI, MPICH, Intel MPI:  mpirun -n 8 WRAPPER python train.py
# Which node this is follows from the ranks before it, so nodes must be filled one after another.
if [ -n "${OMPI_COMM_WORLD_RANK:-}" ]; then
  rank=$OMPI_COMM_WORLD_RANK report='report_rank_%q{OMPI_COMM_WORLD_RANK}' mpi=openmpi
  local_rank=$OMPI_COMM_WORLD_LOCAL_RANK
  node=$((rank / OMPI_COMM_WORLD_LOCAL_SIZE))
else
  : "${PMI_RANK:?no MPI rank: put mpirun in front of this script}"
  rank=$PMI_RANK report='report_rank_%q{PMI_RANK}' mpi=mpich
  local_rank=$MPI_LOCALRANKID
  node=$((rank / MPI_LOCALNRANKS))
fi
run=${SLURM_JOB_ID:-${PBS_JOBID:-}}
