#!/usr/bin/env bash
# capture.sh OUT ITERATIONS PLANT: four ranks of rank.py, one real nsys each → OUT/report_rank_N.nsys-rep. Run as root: nsys stores
# the environment of every process it can see, so the ranks get namespaces of their own; what they start ends with them.
# PYTHON: an interpreter with nvtx==0.2.11. NSYS: 2023.4 or newer also samples Python functions. OPTIONS: further ones of nsys.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" != --inside ]; then
  out=$(mkdir -p "$1" && cd "$1" && pwd)
  env -i PATH="$PATH" HOME=/tmp PYTHON="${PYTHON:-python3}" NSYS="${NSYS:-nsys}" OPTIONS="${OPTIONS:-}" \
    unshare --net --pid --mount --uts --fork --kill-child --mount-proc bash "$0" --inside "$out" "$2" "$3"
  exit
fi
out=$2 iterations=$3 plant=$4 quota=/sys/fs/cgroup/cpu/rankscope-why
base=$("$PYTHON" -c 'import sys; print(sys.base_prefix)')
work=$(mktemp -d)
trap 'rm -rf "$work"; rmdir "$quota" 2> /dev/null || true' EXIT
cp "$here/rank.py" "$work/"
cd "$work"
ip link set lo up
mkdir -p /tmp/nvidia
mount -t tmpfs tmpfs /tmp/nvidia
mount -t tmpfs tmpfs /dev/shm
export LD_LIBRARY_PATH=$base/lib
if [ "$plant" = preempted ]; then # a neighbour that the scheduler prefers: 30 ms of every 40
  taskset -c 0 chrt -f 2 "$PYTHON" -c '
import time
while True:
    until = time.perf_counter() + 0.030
    while time.perf_counter() < until: pass
    time.sleep(0.010)' &
  neighbour=$!
fi
if [ "$plant" = quota ]; then # 5 ms of every 20
  mkdir -p "$quota"
  echo 20000 > "$quota/cpu.cfs_period_us"
  echo 5000 > "$quota/cpu.cfs_quota_us"
fi
pids=()
for rank in 0 1 2 3; do
  first="chrt -f 1" # four ranks on few cores disturb each other less
  if [ "$plant" = quota ]; then
    [ "$rank" != 1 ] || first="sh -c 'echo \$\$ > $quota/tasks && exec \"\$@\"' quota"
  fi
  # shellcheck disable=SC2016,SC2086
  (eval "set -- $first"; exec unshare --uts sh -c 'hostname "$0"; exec "$@"' "node$((rank / 2))" \
    env RANK=$rank LOCAL_RANK=$((rank % 2)) WORLD_SIZE=4 timeout 60 "$NSYS" profile --force-overwrite true \
    --trace=nvtx,osrt --sample=process-tree --cpuctxsw=process-tree $OPTIONS -o "$work/report_rank_$rank" \
    "$@" "$PYTHON" "$work/rank.py" "$iterations" "$plant") > "$out/log.$rank" 2>&1 &
  pids+=($!)
  sleep 0.7 # several nsys that start at once lose their agents
done
for pid in "${pids[@]}"; do wait "$pid" || true; done
[ -z "${neighbour:-}" ] || kill "$neighbour"
for rank in 0 1 2 3; do
  mv "$work/report_rank_$rank.nsys-rep" "$out/"
done
