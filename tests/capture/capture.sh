#!/usr/bin/env bash
# capture.sh OUT [ITERATIONS]: profile four ranks of train.py, one real nsys each, into OUT/report_rank_N.nsys-rep.
# Run as root: the ranks get namespaces of their own, for nsys stores the environment of every process it can see, and
# several of them share /tmp/nvidia badly. PYTHON: an interpreter with torch and nvtx==0.2.11 (later ones record nothing).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" != --inside ]; then
  out=$(mkdir -p "$1" && cd "$1" && pwd)
  python=$(command -v "${PYTHON:-python3}")
  env -i PATH="$PATH" HOME=/tmp unshare --net --pid --mount --uts --fork --mount-proc \
    bash "$0" --inside "$out" "${2:-15}" "$python"
  ls "$out"/report_rank_{0,1,2,3}.nsys-rep
  exit
fi
out=$2 iterations=$3 python=$4
ip link set lo up
mkdir -p /tmp/nvidia
mount -t tmpfs tmpfs /tmp/nvidia
mount -t tmpfs tmpfs /dev/shm
pids=()
for rank in 0 1 2 3; do
  RANK=$rank LOCAL_RANK=$((rank % 2)) WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29533 \
    timeout 180 nsys profile --force-overwrite true --trace=nvtx --sample=none --cpuctxsw=none \
    -o "$out/report_rank_$rank" "$python" "$here/train.py" "$iterations" > "$out/log.$rank" 2>&1 &
  pids+=($!)
  sleep 0.7 # several nsys that start at once lose their agents
done
for pid in "${pids[@]}"; do wait "$pid" || { tail -n 20 "$out"/log.*; exit 1; }; done
