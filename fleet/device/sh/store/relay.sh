# Serves a blob of this board to a neighbour: the bytes go from here into ssh.
# $1 blob, $2 its size, $3 the neighbour's host key (type and base64), $4 its address, $5 port,
# $6 user, $7 seconds to connect, $8 what goes before the bytes, $9 what the neighbour runs,
# then the first block of 1 MiB, the first byte in it (from 1) and the number of blocks.
# stdin: a line for each piece. Without it no more is sent: the neighbour may be another's by now.
# Nothing is written here. stdout: `relay in`, `sent <blocks>`, the neighbour's own lines.
set -u
LC_ALL=C; export LC_ALL
blob=$1 size=$2 key=$3 address=$4 port=$5 user=$6 seconds=$7 opening=$8 command=$9
shift 9
at=$1 byte=$2 blocks=$3
no() { echo "relay no $1"; exit 69; }
have=''
if [ -f "$blob" ] && [ ! -L "$blob" ]; then have=$(wc -c < "$blob"); fi
[ "${have##* }" = "$size" ] || { echo "relay gone it has that file no more"; exit 66; }
command -v ssh > /dev/null 2>&1 || no "there is no ssh client on it"
[ -S "${SSH_AUTH_SOCK:-}" ] || no "its ssh server forwards no agent"
for echo in /bin/echo /usr/bin/echo; do [ ! -x "$echo" ] || break; done
pieces() {
  printf '%s' "$opening" || return
  count=8
  while [ "$at" -lt "$blocks" ]; do
    read -r _ || return
    if [ "$byte" = 1 ]; then
      dd if="$blob" bs=1048576 skip="$at" count=$count 2> /dev/null || return
    else
      count=1
      dd if="$blob" bs=1048576 skip="$at" count=1 2> /dev/null | tail -c "+$byte" || return
    fi
    at=$((at + count)) byte=1 count=8
    echo "sent $at" >&3 || return
  done
}
exec 3>&1
pieces | ssh -F /dev/null -T -a -x -o HostKeyAlias=fleet-neighbour -p "$port" -l "$user" \
  -o BatchMode=yes -o IdentityFile=none -o PreferredAuthentications=publickey \
  -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null \
  -o "KnownHostsCommand=$echo fleet-neighbour $key" \
  -o CheckHostIP=no -o UpdateHostKeys=no -o ControlMaster=no -o ControlPath=none \
  -o "ConnectTimeout=$seconds" -o ServerAliveInterval=10 -o ServerAliveCountMax=3 \
  -o Ciphers=aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes256-ctr \
  -o Compression=no -o LogLevel=ERROR -o EscapeChar=none \
  -o PermitLocalCommand=yes -o "LocalCommand=echo relay in" -- "$address" "$command"
status=$?
# 255 is also what the client on the workstation says of its own connection.
if [ "$status" = 255 ]; then ssh -V >&2; exit 70; fi
exit "$status"
