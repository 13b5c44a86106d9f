# The last lines of the log of a service, after a mark. $1 folder of the service, $2 lines.
set -u
echo fleet-file
if [ ! -f "$1/log" ]; then echo "there is no log yet" >&2; exit 44; fi
tail -n "$2" "$1/log"
