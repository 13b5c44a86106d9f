# Looks at heat, clocks, power and load. Functions for run.sh and look.sh, in one text with them.
# $1 seconds between two looks during a run ("" for none); taken off the arguments.
# FLEET_SYSROOT: prefix of /sys and /proc on lab boards of an ordinary user.
# Only `sleep` is a program: all reading is done by the shell itself.
fl_every=$1
shift
fl_root=${FLEET_SYSROOT:-}
fl_proc=/proc
if [ -r "$fl_root/proc/uptime" ]; then fl_proc=$fl_root/proc; fi
fl_boot=$fl_root/proc/sys/kernel/random/boot_id
[ -r "$fl_boot" ] || fl_boot=/proc/sys/kernel/random/boot_id
# What cannot be opened or read is "".
fl_get() { fl_v=''; read -r fl_v < "$1"; } 2>/dev/null
fl_moment() { fl_get "$fl_proc/uptime"; fl_now=${fl_v%% *}; }
# What the columns of a look are (below /sys), then what stays as it is in a run.
fl_head() {
  fl_list=''
  set -- "$fl_root/sys/class" "$fl_root/sys/devices/system/cpu/cpufreq"
  for fl_f in "$1"/thermal/thermal_zone*/temp "$2"/policy*/scaling_cur_freq \
    "$2"/policy*/scaling_max_freq "$1"/devfreq/*/cur_freq "$1"/devfreq/*/max_freq; do
    [ ! -r "$fl_f" ] || fl_list="$fl_list ${fl_f#"$fl_root/sys/"}"
  done
  echo "list$fl_list"
  for fl_f in "$1"/thermal/thermal_zone*/type "$2"/policy*/cpuinfo_max_freq \
    "$2"/policy*/scaling_governor "$1"/devfreq/*/governor \
    "$1"/power_supply/*/online "$1"/power_supply/*/status; do
    fl_get "$fl_f"
    [ -z "$fl_v" ] || echo "is ${fl_f#"$fl_root/sys/"} $fl_v"
  done
}
# One line: $1 tag, uptime, $2 what this process used of the CPU, load, one value a column.
# Within /sys: `(cd "$fl_root/sys"; fl_look ...)`.
fl_look() {
  fl_moment
  fl_get "$fl_proc/loadavg"
  fl_line="$1 ${fl_now:--} $2 ${fl_v%% *}"
  # shellcheck disable=SC2086 # a list of words
  for fl_f in $fl_list; do fl_get "$fl_f"; fl_line="$fl_line ${fl_v:--}"; done
  echo "$fl_line"
}
# Android tells temperatures by a service where the shell may not read the zones.
fl_service() {
  case $fl_list in *thermal_zone*) return 0 ;; esac
  command -v dumpsys >/dev/null 2>&1 || return 0
  dumpsys thermalservice 2>/dev/null | while IFS= read -r fl_v; do
    case $fl_v in *Temperature\{*) echo "service $1 $fl_v" ;; esac
  done
}
# fl_cost: ns of this process by itself, then user, system and both of its children in ticks of
# 10 ms; fl_ms: all of it in ms.
fl_used() {
  fl_get /proc/self/schedstat
  fl_ns=${fl_v%% *}
  fl_get /proc/self/stat
  # shellcheck disable=SC2086 # a list of words
  set -- ${fl_v##*) }
  fl_cost=${fl_ns:--}:${12:--}:${13:--}:${14:--}:${15:--}
  fl_ms=${fl_ns%??????}
  case $fl_ns in
    '') fl_ms=$(((${12:-0} + ${13:-0}) * 10)) ;;
    ? | ?? | ??? | ???? | ????? | ??????) fl_ms=0 ;;
  esac
  fl_ms=$((fl_ms + (${14:-0} + ${15:-0}) * 10))
}
fl_before() {
  echo 'fleet-look 1'
  fl_get "$fl_boot"; echo "boot $fl_v"
  fl_head
  (cd "$fl_root/sys"; fl_look before -) 2>/dev/null
  fl_service before
}
fl_after() {
  fl_look after -
  fl_service after
  fl_get "$fl_boot"; echo "boot $fl_v"
}
# Until the mark $1 is gone, or process $2 (a run that was killed), or after $3 seconds and the
# time that ending a run takes. Where looks took more than 0.8% of a CPU so far, the next ones
# wait: that leaves room for one more below 1%.
fl_during() {
  fl_moment
  fl_from=${fl_now%%.*}
  fl_end=$((fl_from + $3 + 10))
  fl_pause=$fl_every
  while sleep "$fl_pause" || sleep 1; do
    [ -e "$1" ] || return 0
    kill -0 "$2" || return 0
    fl_moment
    fl_used
    fl_pause=$fl_every
    if [ "$fl_ms" -le $(((${fl_now%%.*} - fl_from + 1) * 8)) ]; then fl_look during "$fl_cost"
    else case $fl_every in 0*) fl_pause=1 ;; esac; fi
    [ "${fl_now%%.*}" -lt "$fl_end" ] || return 0
  done
}
