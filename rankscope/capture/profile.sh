# From here on the same for every scheduler.
fail() {
  echo "$0: rank ${rank:-?}: $*" >&2
  exit 1
}

[ $# -gt 0 ] || fail "name the training command after this script"
[ -z "$nodes" ] || [ "$node" -lt "$nodes" ] || exec "$@"
[ -z "$ranks" ] || [[ " $ranks " == *" $rank "* ]] || exec "$@"
[ -z "$local_ranks" ] || [[ " $local_ranks " == *" $local_rank "* ]] || exec "$@"

nsys=${RANKSCOPE_NSYS:-nsys}
command -v "$nsys" > /dev/null || fail "$nsys: not found; load its module, or set RANKSCOPE_NSYS"
help=$("$nsys" profile --help)

# nsys itself would leave the report in a node's TMPDIR where this folder is missing or the file is there.
folder=${RANKSCOPE_REPORTS:-$reports${run:+/$run}}
mkdir -p "$folder" || fail "$folder: cannot be made; set RANKSCOPE_REPORTS to a shared folder"
[ -w "$folder" ] || fail "$folder: cannot be written to; set RANKSCOPE_REPORTS to a shared folder"
! [ -e "$folder/report_rank_$rank.nsys-rep" ] ||
  fail "$folder/report_rank_$rank.nsys-rep: is there already; move it away, or set RANKSCOPE_REPORTS"

# Events are buffered in TMPDIR, on the node's own disk. There every nsys of the node also keeps its
# locks; if another user made those so that they cannot be shared, a folder of our own must do, of a
# name that nobody can guess and be there first.
TMPDIR=${RANKSCOPE_TMPDIR:-$tmp}
mkdir -p "$TMPDIR" || fail "$TMPDIR: cannot be made; set RANKSCOPE_TMPDIR"
locks=$TMPDIR/nvidia/nsight_systems
if [ -e "$locks" ] && [ ! -w "$locks" ]; then
  TMPDIR=$(mktemp -d "$TMPDIR/nsys-XXXXXXXXXX") || fail "no folder can be made there; set RANKSCOPE_TMPDIR"
fi
export TMPDIR

options=("--trace=$trace" "--sample=$sample" "--cpuctxsw=$cpuctxsw" --wait=primary)
[[ ",$trace," != *,mpi,* ]] || [ -z "${mpi:-}" ] || options+=("--mpi-impl=$mpi")

# Options that were renamed: 2023.4 knows the second name.
if [ -n "$functions" ]; then
  case $help in
    *--python-functions-trace=*) options+=("--python-functions-trace=$functions") ;;
    *--python-nvtx-annotations=*) options+=("--python-nvtx-annotations=$functions") ;;
    *) fail "$nsys is too old to annotate Python functions; 2023.4 does" ;;
  esac
fi

# The device's counters are there once a node.
first=${local_ranks%% *}
counts=no
if [ -n "$metric_ranks" ]; then
  [[ " $metric_ranks " != *" $rank "* ]] || counts=$metrics
elif [ "$local_rank" = "${first:-0}" ]; then
  counts=$metrics
fi
if [ "$counts" = yes ]; then
  case $help in
    *--gpu-metrics-devices=*) options+=(--gpu-metrics-devices=all) ;;
    *) options+=(--gpu-metrics-device=all) ;;
  esac
fi

for each in ${optional[@]+"${optional[@]}"}; do
  case $help in
    *"${each%%=*}="*) options+=("$each") ;;
    *) echo "$0: $nsys is too old for ${each%%=*}: left out" >&2 ;;
  esac
done

# Several nsys that start at the same moment can lose their agents, and with them a report.
[ ${#window[@]} -gt 0 ] || sleep "$((local_rank / 2)).$((local_rank % 2 * 5))"

exec "$nsys" profile "${options[@]}" ${window[@]+"${window[@]}"} ${extra[@]+"${extra[@]}"} \
  --output="${folder//%/%%}/$report" "$@"
