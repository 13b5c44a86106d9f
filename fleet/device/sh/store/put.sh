# Puts one content of the deploy user on the device, readable by it alone. $1 path; stdin: content.
set -u
umask 077
path=$1
mkdir -p "${path%/*}" || exit 74
cat > "$path.new" && mv -f "$path.new" "$path" || { rm -f "$path.new"; exit 74; }
echo "put"
