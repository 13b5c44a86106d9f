# Becomes the server of a service. $1 folder of the service, which links to its release.
# A file of the release: the supervisor and systemd start it alike. 10: not to be started again.
set -u
dir=$1
rel=$(cd "$dir/release" 2>/dev/null && pwd -P) || { echo "the release is gone: fleet deploy" >&2; exit 10; }
own=$(readlink "$dir/release"); base=${own%/*/*/*}
# shellcheck disable=SC1090 # of this release
. "$base/meta/${own#"$base/releases/"}/env.sh" || exit 10
cd "$rel/bundle" || exit 10
exec python3 -I -B "$rel/run/fleet_server.py" "$dir"
