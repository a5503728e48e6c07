#!/usr/bin/env bash
# The picked reports of a run on one timeline of the real Nsight Systems GUI, as pictures to look at; run by hand.
#   tests/view/check_gui.sh OUT_DIR [REPORTS]
# NSYS_UI: the GUI's command [nsys-ui]; RANKSCOPE: rankscope's command [rankscope].
# Needs Xvfb, openbox, xdotool, tesseract, jq and ImageMagick.
set -euo pipefail
[[ $# -ge 1 && $# -le 2 ]] || { sed -n '2,5s/^# *//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
reports=$(realpath "${2:-$here/sample_reports/ddp_4ranks}")
gui=${NSYS_UI:-nsys-ui}
read -ra rankscope <<<"${RANKSCOPE:-rankscope}"

die() { echo "check_gui: FAILED: $*" >&2; exit 1; }
picture() { import -window root "$out/$1.png"; }

for tool in Xvfb openbox xdotool tesseract jq import "$gui" "${rankscope[0]}"; do
    command -v "$tool" >/dev/null || die "$tool is not there"
done
[[ $(<"$(readlink -f "$(command -v "$gui")")") =~ 20[0-9]{2}\.[0-9]+\.[0-9]+ ]] || die "$gui does not say its version"
version=${BASH_REMATCH[0]}

echo "== rankscope picks"
rm -rf "${out:?}"/{run.duckdb*,picks.*,home,*.png,*.log}
"${rankscope[@]}" ingest -q "$reports" --db "$out/run.duckdb" >"$out/ingest.log"
pick=("${rankscope[@]}" pick-reports --db "$out/run.duckdb" --view "$out/picks.nsys-view")
"${pick[@]}"
"${pick[@]}" --quiet --format json >"$out/picks.json"

echo "== $gui $version"
started=()
finish() {
    for ((i = ${#started[@]} - 1; i >= 0; i--)); do kill -- "-${started[i]}" 2>/dev/null || true; done
}
trap finish EXIT
begin() { # NAME COMMAND...: in a process group of its own, so that all of it ends with the check
    setsid "${@:2}" >"$out/$1.log" 2>&1 &
    started+=($!)
}
until_true() { # SECONDS WHAT COMMAND...
    for ((n = 0; n < $1; n++)); do "${@:3}" >/dev/null 2>&1 && return; sleep 1; done
    picture failed || true
    die "$2 (after $1 s; see $out/failed.png and $out/gui.log)"
}
for ((number = 80; number < 99; number++)); do [[ -e /tmp/.X$number-lock ]] || break; done
export DISPLAY=:$number QTWEBENGINE_DISABLE_SANDBOX=1 HOME=$out/home
unset XDG_CONFIG_HOME WAYLAND_DISPLAY
begin xvfb Xvfb "$DISPLAY" -screen 0 1920x1200x24
until_true 20 "Xvfb does not start" xdotool getdisplaygeometry
begin openbox openbox

# What the first start would ask: no telemetry, GPU rows on top.
mkdir -p "$HOME/.config/NVIDIA Corporation"
asked="AskedFor_NVIDIA%20Nsight%20Systems"
cat >"$HOME/.config/NVIDIA Corporation/NVIDIA Nsight Systems.ini" <<EOF
[CorePlugin.Privacy]
${asked}_=HasAsked
${asked}_$version=HasAsked
CorePlugin.AllowAnalytics=false
[QuadDPlugin.OptionsPreset]
QuadDPlugin.${asked}_$version=HasAsked
QuadDPlugin.OptionsPreset=graphicsPreset
EOF

shows() { # REGEX [CROP]: is it written on the screen?
    import -window root -crop "${2:-1920x1200+0+0}" +repage -resize 300% png:- | tesseract - - --psm 11 2>/dev/null | grep -qE -- "$1"
}
document=("$out/picks.nsys-view")
((${version%%.*} >= 2023)) || document=() # 2022.4 hangs on a view document on its command line
begin gui "$gui" --no-splash "${document[@]}"
sleep 5
kill -0 "${started[-1]}" 2>/dev/null || die "$gui ended at once: does another one run (it takes over, on any display)? See $out/gui.log"
window() { xdotool search --onlyvisible --name "^NVIDIA Nsight Systems $version"; }
until_true 60 "the GUI's window does not appear" window
sleep 5
xdotool windowmove "$(window)" 0 20 windowsize "$(window)" 1916 1176 windowactivate --sync "$(window)"
sleep 2
if ((${#document[@]} == 0)); then
    xdotool key ctrl+o
    until_true 20 "File > Open does not open" xdotool search --onlyvisible --name '^Open Document'
    xdotool type --delay 20 "$out/picks.nsys-view"
    xdotool key Return
fi
until_true 60 "the view document does not open" shows 'nsys-rep' 1300x500+450+100
picture 1_document
xdotool mousemove 768 88 click 1 # Apply
until_true 300 "Apply leads to no timeline" shows 'python|Threads|NVTX' 210x500+450+120
xdotool mousemove 1180 630 mousedown 1 mousemove 1180 900 mousemove 1180 1120 mouseup 1 # the pane below, away
sleep 3
picture 2_timeline

echo "== rows"
rows=$(convert "$out/2_timeline.png" -crop 200x1020+455+125 +repage -resize 300% png:- | tesseract - - --psm 6 2>/dev/null)
while read -r rank host pid; do # the pid is read well from a picture; the host, not always
    grep -qF -- "[$pid]" <<<"$rows" || die "rank $rank: no row of [$pid]; read from the picture: $rows"
    echo "rank $rank: [$pid] is there; look whether it is under $host"
done < <(jq -r '.picks[] | "\(.rank) \(.host) \(.pid)"' "$out/picks.json")

echo "== zoom to the worst iteration: the axis' labels say which pixel is which second"
read -r middle length < <(jq -r '[.picks[].windows.worst] | (map(.shared_start_ns) | min) as $a | (map(.shared_end_ns) | max) as $b | "\(($a + $b) / 2e9) \(($b - $a) / 1e9)"' "$out/picks.json")
convert "$out/2_timeline.png" -crop 1240x22+655+104 +repage -resize 300% "$out/axis.png"
read -r x clicks < <(tesseract "$out/axis.png" - --psm 11 tsv 2>/dev/null | awk -v t="$middle" -v w="$length" '
    $12 ~ /^-?[0-9.]+s$/ { n++; s = $12 + 0; p = 655 + ($7 + $9 / 2) / 3; ss += s; pp += p; sp += s * p; s2 += s * s }
    END { if (n < 3) exit; slope = (sp - ss * pp / n) / (s2 - ss * ss / n)
          printf "%d %d\n", pp / n + slope * (t - ss / n), log(400 / (slope * w)) / log(1.1) }') || die "the axis cannot be read: $out/axis.png"
xdotool mousemove "$x" 900 keydown ctrl
for ((n = 0; n < clicks; n++)); do xdotool click 4; sleep 0.15; done
xdotool keyup ctrl
sleep 3
picture 3_worst
echo "look at $out/3_worst.png: around $middle s, ${length} s long, in every rank's row"
