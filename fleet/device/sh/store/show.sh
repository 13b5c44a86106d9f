# Prints one file after a mark, so that what a login shell prints is told from it. $1 path;
# $2 the path where the folder of the first is not there.
echo fleet-file
if [ $# = 2 ] && [ ! -d "${1%/*}" ]; then shift; fi
cat "$1"
