# The tools of a device, each tried as scripts of ours use it; joined to replace.sh. $1 a folder of
# our own, which is removed at the end. Output: `fleet-tools 1`, `name yes` or `name no` a line, `end`.
set -u
LC_ALL=C; export LC_ALL
mkdir -p "$1" && cd "$1" || exit 73
echo 'fleet-tools 1'
printf abcdef > six
mkdir one two
ln -s one live
try() { if sh -c "$2" 2>/dev/null >&2; then echo "$1 yes"; else echo "$1 no"; fi; }
# shellcheck disable=SC2016 # for the inner shell
{
try dd '[ "$(dd if=six bs=1 skip=2 count=3)" = cde ]'
try dd-fullblock '[ "$({ printf ab; sleep 1; printf cd; } | dd bs=4 count=1 iflag=fullblock)" = abcd ]'
try find '[ "$(find . -type f -exec cat {} +)" = abcdef ]'
try find-printf '[ "$(find six -printf %s)" = 6 ]'
try wc '[ "$(wc -c < six)" -eq 6 ]'
try tr '[ "$(tr a-c x < six)" = xxxdef ]'
try od '[ "$(od -An -v -tx1 -N2 six | tr -d " \n")" = 6162 ]'
try grep '[ "$(grep -a -o -E "b.d" six)" = bcd ]'
try readlink '[ "$(readlink live)" = one ]'
try stat '[ "$(stat -c %s six)" = 6 ]'
try mv-T 'mv -T live live2 && mv live2 live'
try sha256 'sha256sum six | grep bef57ec7f53a6d40beb640a780a639c83bc29ac8a9816f1fc6c5c6dcd93c4721'
try timeout 'timeout 1 sleep 3; [ $? -gt 123 ]'
try timeout-status 'timeout 5 sh -c "exit 7"; [ $? = 7 ]'
try tar 'tar -cf six.tar six && [ "$(tar -xOf six.tar)" = abcdef ]'
try setsid 'setsid true'
try sync 'sync six'
}
if (point live two .live && replace one three && [ "$(readlink live)" = two ]) 2>/dev/null; then echo 'replace yes'; else echo 'replace no'; fi
cd / && rm -rf "$1"
echo end
