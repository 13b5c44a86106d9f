# Prints one file after a mark, so that what a login shell prints is told from it. $1 path.
echo fleet-file
cat "$1"
