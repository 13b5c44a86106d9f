# Starts a runner in a work folder of its own. $1 work folder, $2 text of config.json ("" for
# none), $3 limit in whole seconds, then the argv. stdin: the prompt, kept as prompt.txt.
set -u
umask 077
work=$1 config=$2 limit=$3
shift 3
mkdir -p "$work" || exit 73
cat > "$work/prompt.txt" || exit 74
if [ -n "$config" ]; then printf '%s' "$config" > "$work/config.json" || exit 74; fi
# Nothing of ours stays behind on the device when the host is gone.
if timeout -k 5 5 true 2>/dev/null; then exec timeout -k 5 "$limit" "$@" < /dev/null; fi
exec "$@" < /dev/null
