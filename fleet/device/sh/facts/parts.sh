# What a maintainer wants to see of a device, raw; reads only, and every tool may be missing.
# Output: `== NAME` and what was said, at most 64 KiB of each; `== end`. FLEET_SYSROOT: as in the facts.
set -u
LC_ALL=C; export LC_ALL
PATH=$PATH:/usr/sbin:/sbin; export PATH
R=${FLEET_SYSROOT:-}
guard=''
[ "$(timeout 5 echo ok 2>/dev/null)" = ok ] && guard='timeout 5'
part() {
  echo "== $1"
  shift
  # shellcheck disable=SC2086 # two words
  $guard "$@" 2>&1 | head -c 65536
  echo
}
# The same of a text for a shell, with $R as $1.
part_sh() { part "$1" sh -c "$2" fleet "$R"; }
part uname uname -a
part_sh os-release 'cat "$1/etc/os-release" 2>/dev/null || cat /etc/os-release'
part cmdline cat /proc/cmdline
part_sh kernel-config '{ zcat /proc/config.gz || cat "/boot/config-$(uname -r)"; } 2>/dev/null | grep -E "FASTRPC|DMABUF|REMOTEPROC|QCOM_Q6V5|UDMABUF"'
part_sh soc0 'cd "$1/sys/devices/soc0" && for f in *; do [ -f "$f" ] && [ "$f" != serial_number ] && echo "$f: $(cat "$f" 2>/dev/null)"; done'
part_sh device-tree 'tr "\000" "\n" < "$1/sys/firmware/devicetree/base/compatible"; tr "\000" "\n" < "$1/sys/firmware/devicetree/base/model"'
part_sh nodes 'cd "$1/dev" && ls -ldZ *rpc* dma_heap/* 2>/dev/null || ls -ld *rpc* dma_heap/*'
part_sh udevadm 'for f in "$1"/dev/*rpc* "$1"/dev/dma_heap/*; do [ -e "$f" ] && udevadm info "$f"; done'
part_sh rules 'for f in $(grep -l -s -E "fastrpc|dma_heap|adsprpc" "$1"/etc/udev/rules.d/* "$1"/run/udev/rules.d/* "$1"/usr/lib/udev/rules.d/* "$1"/lib/udev/rules.d/*); do echo "# $f"; cat "$f"; done'
part_sh packages '{ dpkg-query -W -f "\${Package} \${Version} \${db:Status-Status}\n" || opkg list-installed || rpm -qa; } 2>/dev/null | grep -i -E "rpc|dsp|qcom|qnn|qairt|qti|hexagon|firmware|libc6|python3 |udev|acl "'
part_sh policy 'apt-cache policy qcom-fastrpc1 libfastrpc1 fastrpc-support fastrpc; apt-cache depends qcom-fastrpc1 fastrpc-support'
part_sh libraries 'ldconfig -p 2>/dev/null | grep -E "cdsprpc|adsprpc|Qnn|Genie|atomic|stdc"; ls -l "$1"/usr/lib/*cdsprpc* "$1"/usr/lib/*/*cdsprpc* "$1"/vendor/lib64/*cdsprpc* 2>/dev/null'
part_sh remoteproc 'for f in "$1"/sys/class/remoteproc/*; do echo "$(cat "$f/name") $(cat "$f/state") $(cat "$f/firmware")"; done'
part_sh firmware 'for f in $(find "$1"/lib/firmware/ "$1"/vendor/firmware/ -name "cdsp*" 2>/dev/null | head -n 40); do echo "$f $(wc -c < "$f") $(grep -a -o -m 1 -E "(QC|OEM)_IMAGE_VERSION_STRING=[ -~]{1,80}" "$f" | head -n 1)"; done'
part_sh shells 'ls -l "$1"/usr/lib/dsp/* "$1"/usr/lib/rfsa/adsp/* "$1"/usr/share/hexagon-dsp/*/*/*/dsp/cdsp/* "$1"/usr/share/qcom/*/*/*/dsp/cdsp/* "$1"/vendor/dsp/cdsp/* 2>/dev/null | head -n 200'
part_sh units 'systemctl --no-pager status cdsprpcd adsprpcd 2>/dev/null | head -n 60; pidof cdsprpcd adsprpcd'
part_sh thermal 'for f in "$1"/sys/class/thermal/thermal_zone*; do echo "$(cat "$f/type") $(cat "$f/temp")"; done'
part mounts cat /proc/mounts
part_sh selinux 'getenforce; id -Z'
part_sh getprop 'getprop | grep -E "^\[ro\.(soc|board|hardware|vendor\.qti|product|vendor\.build|build)\."'
part_sh tools 'for f in dd mv find timeout sha256sum tar; do echo "$f: $("$f" --version 2>&1 | head -n 1)"; done; busybox 2>/dev/null | head -n 1; toybox --version 2>/dev/null; python3 -VV'
part_sh log '{ journalctl -b --no-pager || { cat /var/log/syslog || cat /var/log/messages || logread; dmesg; } || logcat -d -t 2000; } 2>/dev/null | grep -i -E "fastrpc|cdsp|remoteproc|avc: .*(rpc|dsp)" | tail -n 100'
echo '== end'
