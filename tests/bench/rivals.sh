#!/bin/sh
# Into a folder: what the benchmark sets beside rankscope, each with packages of its own. nsys 2023.4 is unpacked from Debian's
# non-free section (NVIDIA's licence applies) on Debian; elsewhere an nsys on PATH that has recipes does.
set -eu
[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
cd "$1"
python=${PYTHON:-python3}

venv() { # NAME PACKAGE...
  name=$1
  shift
  [ -x "$name/bin/python" ] || "$python" -m venv "$name"
  "$name/bin/python" -m pip install -q --disable-pip-version-check "$@"
}
# Recipes of 2023 shift unsigned numbers as NumPy 2 no longer does, and import asyncore: Python 3.11 at the most.
venv recipes 'numpy<2' 'pandas<2.2' 'pyarrow<17' psutil
# Its cache is made through DuckDB's extension for SQLite, which DuckDB would download.
venv nsys-ai nsys-ai==0.3.0 duckdb==1.4.4 duckdb-ext-sqlite==1.4.4.20260205
venv hta HolisticTraceAnalysis==0.5.0
mkdir -p nsys-ai/home/.duckdb
cp -r nsys-ai/lib/python3*/site-packages/duckdb_ext/extensions nsys-ai/home/.duckdb/

sources=/etc/apt/sources.list.d/debian.sources
if [ ! -d nsys ] && [ -e "$sources" ]; then
  here=$PWD
  mkdir -p apt/lists/partial apt/cache/archives/partial
  mirror=$(awk '$1 == "URIs:" { print $2; exit }' "$sources")
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie contrib non-free" > apt/sources.list
  apt() {
    (cd apt && apt-get -qq -o APT::Sandbox::User= -o Dir::Etc::sourcelist="$here/apt/sources.list" -o Dir::Etc::sourceparts=- \
      -o Dir::State::lists="$here/apt/lists" -o Dir::Cache="$here/apt/cache" "$@")
  }
  apt update
  apt download nsight-systems nsight-systems-target
  for package in apt/*.deb; do dpkg-deb -x "$package" nsys; done
  # Debian leaves out an empty folder that recipes look for.
  mkdir -p nsys/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64/python/packages/nsys_recipe/third_party
  rm -r apt
fi
