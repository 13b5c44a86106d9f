# What all commands on leases share; docs/leases.md says how it works and why.
# A lease is the folder <kind>.<N>; only the highest N counts. In it: `owner` (one line of
# harmless words: format owner reason run token boot since), `keep` (boot, uptime of its end, ttl),
# `step` (boot, uptime of its end, run|idle, pid), `released`. Times are whole seconds.
set -u
umask 022
fail() { echo "failed $*"; echo "end"; exit 0; }
# Numbers of ours have at most 9 digits: mksh computes with 32 bits, and evaluates names.
digits() { case ${1:-x} in *[!0-9]* | 0?* | ??????????*) return 1 ;; esac; }
clock() {
  up='' boot=''
  read -r up _ 2>/dev/null < /proc/uptime
  read -r boot 2>/dev/null < /proc/sys/kernel/random/boot_id
  now=${up%%.*}
  if ! digits "$now" || [ -z "$boot" ]; then fail "uptime or boot id of the board cannot be read"; fi
}
# Finds the folder that all users share; "make" makes it. 1: there is none.
place() {
  make=$1 dir=''
  if [ -n "${FLEET_LEASE_DIR:-}" ]; then set -- "$FLEET_LEASE_DIR"; else set -- /var/tmp /data/local/tmp /tmp; fi
  for up in "$@"; do
    dir=$up/fleet-lease
    if [ -L "$dir" ]; then fail "$dir is a symbolic link"; fi
    if [ -e "$dir" ]; then break; fi
    if [ -d "$up" ] && [ -w "$up" ]; then
      if [ "$make" != make ]; then return 1; fi
      (umask 0; mkdir "$dir" && chmod 1777 "$dir") 2>/dev/null
      break
    fi
    dir=''
  done
  if [ -z "$dir" ]; then
    if [ "$make" != make ]; then return 1; fi
    fail "no folder for leases can be written: $*"
  fi
  if [ ! -d "$dir" ] || [ -L "$dir" ]; then fail "$dir is no folder"; fi
  if [ "$make" = make ] && [ ! -w "$dir" ]; then fail "$dir cannot be written by this user"; fi
}
# Sets top: the highest generation of kind $1, below $2 where that is given; 0: none.
highest() {
  top=0
  for one in "$dir/$1".*; do
    n=${one##*.}
    if digits "$n" && [ "$n" -gt "$top" ] && [ "$n" -lt "${2:-999999999}" ]; then top=$n; fi
  done
}
# Reads that generation. Sets state (free, held), its words, left, busy; seen: what was read.
look() {
  highest "$@"
  at=$dir/$1.$top
  state=free left=0 busy=idle age=-
  v='' owner='' reason='' run='' token='' born='' since='' kb='' ku='' kl='' sb='' su='' sm='' sp=''
  if [ "$top" = 0 ]; then seen=none; return; fi
  for one in owner keep step; do
    if [ -e "$at/$one" ] && [ ! -r "$at/$one" ]; then fail "$at/$one cannot be read by this user"; fi
  done
  read -r v owner reason run token born since _ 2>/dev/null < "$at/owner"
  read -r kb ku kl _ 2>/dev/null < "$at/keep"
  read -r sb su sm sp _ 2>/dev/null < "$at/step"
  seen="$token $kb $ku $kl/$sb $su $sm $sp"
  # A lease is never seen without its words: a power cut took them.
  if [ -e "$at/released" ] || [ -z "$token" ]; then return; fi
  if [ "$kb" = "$boot" ]; then if digits "$ku"; then left=$((ku - now)); fi
  elif [ "$1" = reserve ]; then if digits "$kl"; then left=$((kl - now)); fi; fi
  if [ "$sb" = "$boot" ] && digits "$su"; then
    if [ $((su - now)) -gt "$left" ]; then left=$((su - now)); fi
    if [ "$sm" = run ] && [ "$su" -gt "$now" ]; then busy=run; fi
  fi
  if [ "$born" = "$boot" ] && digits "$since"; then age=$((now - since)); fi
  if [ "$left" -gt 0 ]; then state=held; fi
}
# Nothing comes after that number. Fleet never gets there: a user of the board made it.
spent() {
  if [ "$top" -lt 999999998 ]; then return 1; fi
  echo "spent $1 $(ls -ld "$at" | { read -r _ _ maker _; echo "$maker"; }) $at"
}
tell() { echo "$1 $2 $top $owner $reason $run $token $left $age $busy"; }
# Puts generation $2 of kind $1 there in one rename: held, or released at once ($3). Sets why.
# 1: another one was first.
create() {
  new=$dir/.new.$now.$mine
  why=$({
    set -C
    if [ -e "$new" ] || [ -L "$new" ]; then rm -rf "$new"; fi
    mkdir "$new" \
      && echo "1 $me $because $job $mine $boot $now" > "$new/owner" \
      && echo "$boot $((now + ttl + 1)) $ttl" > "$new/keep" \
      && { [ "$3" = held ] || : > "$new/released"; } \
      && { [ ! -e "$dir/$1.$2" ] && [ ! -L "$dir/$1.$2" ]; } \
      && replace "$new" "$dir/$1.$2"
  } 2>&1) && return 0
  rm -rf "$new"
  if [ -e "$dir/$1.$2" ] || [ -L "$dir/$1.$2" ]; then return 1; fi
  fail "no lease can be made in $dir: $why"
}
