#!/bin/sh
# Starts qnn-net-run, then the qnn-profile-viewer beside it, where the release has it. $1 work
# folder, $2 HTP configuration as JSON ("" for none of ours), $3 libraries of the release, then the
# argv. The viewer's profile.json, profile.csv and viewer.txt (its words) stay in the work folder.
set -u
work=$1 htp=$2 lib=$3
shift 3
viewer=${1%/*}/qnn-profile-viewer
reader=$lib/libQnnJsonProfilingReader.so
# Without outputs or a profile qnn-net-run 2.25 makes no folder, cannot write its metadata there and
# ends with 3.
mkdir -p "$work/output" || exit 73
if [ -n "$htp" ]; then
  printf '%s\n' "$htp" > "$work/htp.json" || exit 74
  printf '{"backend_extensions": {"shared_library_path": "%s", "config_file_path": "%s"}}\n' \
    "$lib/libQnnHtpNetRunExtensions.so" "$work/htp.json" > "$work/backend.json" || exit 74
  set -- "$@" --config_file "$work/backend.json"
fi
"$@"
status=$?
[ -x "$viewer" ] || exit "$status"
for log in "$work"/output/*profiling-data*.log; do
  if [ ! -f "$log" ] || [ -L "$log" ]; then continue; fi
  if [ -f "$reader" ]; then
    "$viewer" --reader "$reader" --input_log "$log" --output "$work/profile.json"
  fi
  "$viewer" --input_log "$log" --output "$work/profile.csv"
  break
done > "$work/viewer.txt" 2>&1
exit "$status"
