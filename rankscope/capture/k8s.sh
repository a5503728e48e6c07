# Kubeflow's MPI operator (MPIJob), command of the launcher:  mpirun -n 8 WRAPPER python train.py
# This script and the reports must lie on a volume that all workers mount. Workers are pods named
# JOB-worker-N; where they are not, nodes are told by rank.
case ${HOSTNAME##*-worker-} in
  '' | *[!0-9]*) ;;
  *) node=${HOSTNAME##*-worker-} ;;
esac
