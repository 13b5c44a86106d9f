# Puts one content of the deploy user on the device, readable by it alone. $1 path; stdin: content.
set -u
umask 077
path=$1
mkdir -p "${path%/*}" || exit 74
rm -f "$path.new"
[ ! -d "$path" ] || rm -rf "$path"
# No file is opened that is there, nor what a link leads to.
set -C
cat > "$path.new" && mv -f "$path.new" "$path" || { rm -f "$path.new"; exit 74; }
echo "put"
