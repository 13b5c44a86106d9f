# Prints one file of a work folder, after a mark, and removes the folder.
# $1 work folder, $2 file name.
work=$1
echo fleet-file
if [ -f "$work/$2" ]; then cat "$work/$2"; status=0; else status=44; fi
rm -rf "$work"
exit $status
