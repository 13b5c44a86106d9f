# What only Android says; joined to probe.sh for devices behind adb. Same output form, same rules,
# and the same marks of what is left out.
# FLEET_SYSROOT: prefix of /vendor and /sys on lab phones of an ordinary user.
if has getprop; then
  say getprop "$(getprop | grep -E '^\[ro\.(soc\.|vendor\.qti\.soc_|board\.platform|product\.(manufacturer|model|device|cpu\.abi|vendor\.|odm\.)|build\.(version\.(release|sdk|security_patch)|fingerprint|type)|(boot\.)?serialno|debuggable)' 2>/dev/null)"
  [ "$(cd / && echo dev | cpio -o -H newc 2>/dev/null | cpio -it 2>/dev/null)" = dev ] && say cpio yes
# all: what runs need
  say selinux "$(getenforce 2>/dev/null)"
  has su && say su yes
  for f in "$R"/vendor/lib/rfsa/adsp/libQnn*Skel.so "$R"/vendor/lib64/rfsa/adsp/libQnn*Skel.so "$R"/vendor/dsp/cdsp/libQnn*Skel.so; do
    [ -e "$f" ] && say vendor_skel "${f#"$R"}"
  done
  text=$(${guard:+$guard 5} dumpsys battery 2>/dev/null)
  [ -n "$text" ] || for name in capacity status temp; do
    line "$R/sys/class/power_supply/battery/$name" && text="$text$nl$name: $REPLY"
  done
  say battery "$text"
  # Many phones hide the zones of sysfs from the shell; the service tells.
  [ -r "$R/sys/class/thermal/thermal_zone0/temp" ] ||
    say thermalservice "$(${guard:+$guard 5} dumpsys thermalservice 2>/dev/null | grep -E 'Temperature\{' 2>/dev/null)"
# end of all
fi
