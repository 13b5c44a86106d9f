# Runs a step under a write lease; of a lease that is lost nothing is begun.
# $1 folder, $2 generation, $3 token, $4 ttl in seconds, $5 seconds that the step may take, or
# keep (renew only) or revive (renew after a reboot of the holder's own); then the step's argv.
# An f behind the seconds: where the step succeeds the lease is given back.
fl_dir=$1 fl_n=$2 fl_id=$3 fl_ttl=$4 fl_for=$5
shift 5
case $fl_for in *f) fl_free=yes fl_for=${fl_for%f} ;; *) fl_free=no ;; esac
fl_me=$fl_dir/write.$fl_n
fl_digits() { case ${1:-x} in *[!0-9]* | 0?* | ??????????*) return 1 ;; esac; }
fl_put() {
  # No file is opened that is there, nor what a link leads to.
  (umask 022; set -C; fl_new=$fl_me/.$1.$$
    { echo "$2" > "$fl_new" || { rm -f "$fl_new"; echo "$2" > "$fl_new"; }; } 2>/dev/null \
      && mv -f "$fl_new" "$fl_me/$1") && return
  echo "the lease cannot be renewed in $fl_me" >&2
  exit 74
}
fl_look() {
  fl_boot='' fl_up='' fl_left=no fl_top=0 fl_line='' fl_tok=''
  read -r fl_up _ 2>/dev/null < /proc/uptime
  read -r fl_boot 2>/dev/null < /proc/sys/kernel/random/boot_id
  fl_now=${fl_up%%.*}
  fl_digits "$fl_now" || fl_now=999999999
  for fl_one in keep step; do
    fl_b='' fl_u=''
    read -r fl_b fl_u _ 2>/dev/null < "$fl_me/$fl_one"
    if [ "$fl_b" = "$fl_boot" ] && fl_digits "$fl_u" && [ "$fl_u" -gt "$fl_now" ]; then fl_left=yes; fi
  done
  read -r _ _ _ _ fl_tok _ 2>/dev/null < "$fl_me/owner"
}
fl_highest() {
  for fl_one in "$fl_dir"/write.*; do
    fl_u=${fl_one##*.}
    if fl_digits "$fl_u" && [ "$fl_u" -gt "$fl_top" ]; then fl_top=$fl_u; fi
  done
}
fl_lost() {
  fl_highest
  read -r fl_line 2>/dev/null < "$fl_dir/write.$fl_top/owner"
  echo "fleet-lease-lost $fl_id $1 $fl_line" >&2
  exit 113
}
fl_look
if [ "$fl_tok" != "$fl_id" ]; then fl_lost gone; fi
if [ -e "$fl_me/released" ]; then fl_lost released; fi
if [ "$fl_left" != yes ] && [ "$fl_for" != revive ]; then fl_lost expired; fi
fl_u=$((fl_now + fl_ttl + 1))
case $fl_for in
  keep | revive) fl_put keep "$fl_boot $fl_u $fl_ttl" ;;
  *)
    if [ "$fl_for" -gt "$fl_ttl" ]; then fl_u=$((fl_now + fl_for + 1)); fi
    fl_put step "$fl_boot $fl_u run $$" ;;
esac
# First renewed, then looked: who takes over makes his generation first, then looks whether we
# have renewed. One of the two sees the other.
fl_highest
if [ "$fl_top" != "$fl_n" ]; then fl_lost taken; fi
if [ $# = 0 ]; then exit 0; fi
# adbd sends SIGHUP when its link is gone; this shell stays to say when the step has ended.
trap : HUP
"$@"
fl_status=$?
# A later step may run already, when the host gave this one up; and what is lost stays lost.
fl_look
read -r _ _ _ fl_u _ 2>/dev/null < "$fl_me/step"
if [ "$fl_u" = $$ ] && [ "$fl_left" = yes ]; then
  if [ "$fl_free$fl_status" = yes0 ] && (fl_put released '') 2>/dev/null; then
    echo "fleet-lease-freed $fl_id" >&2
    exit 0
  fi
  fl_put step "$fl_boot $((fl_now + fl_ttl + 1)) idle 0"
fi
exit "$fl_status"
