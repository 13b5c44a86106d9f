# Starts a runner in a work folder of its own. $1 work folder, $2 text of config.json ("" for
# none), then the argv. stdin: the prompt, kept as prompt.txt.
set -u
umask 077
work=$1 config=$2
shift 2
mkdir -p "$work" || exit 73
cat > "$work/prompt.txt" || exit 74
if [ -n "$config" ]; then printf '%s' "$config" > "$work/config.json" || exit 74; fi
exec "$@" < /dev/null
