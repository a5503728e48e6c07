# Open MPI, MPICH, Intel MPI:  mpirun -n 8 WRAPPER python train.py
# Which node this is follows from the ranks before it, so nodes must be filled one after another.
if [ -n "${OMPI_COMM_WORLD_RANK:-}" ]; then
  rank=$(number OMPI_COMM_WORLD_RANK)
  local_rank=$(number OMPI_COMM_WORLD_LOCAL_RANK)
  local_size=$(number OMPI_COMM_WORLD_LOCAL_SIZE)
  report='report_rank_%q{OMPI_COMM_WORLD_RANK}' mpi=openmpi
else
  : "${PMI_RANK:?no MPI rank: put mpirun in front of this script}"
  rank=$(number PMI_RANK)
  local_rank=$(number MPI_LOCALRANKID)
  local_size=$(number MPI_LOCALNRANKS)
  report='report_rank_%q{PMI_RANK}' mpi=mpich
fi
[ "$local_size" -gt 0 ] || local_size=1
node=$((rank / local_size))
run=${SLURM_JOB_ID:-${PBS_JOBID:-}}
